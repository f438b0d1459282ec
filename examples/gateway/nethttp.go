package main

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
)

// netHTTP serves the routes with net/http alone.
func netHTTP(g *gateway) server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+echoPath, echo)
	for path, probe := range g.probes() {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			status, text := probe()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		})
	}
	for path, h := range g.reports() {
		if path == pagePath {
			path += "{$}" // itself, and nothing below it
		}
		mux.Handle("GET "+path, h)
	}
	for path, h := range g.calls(httpgate.Refuse) {
		mux.Handle("POST "+path, h)
		a, _ := apiAt(path)
		mux.Handle(path, onlyPost(a))
	}
	if g.hg == nil {
		return g.newServer(answeredFirst(mux))
	}
	return g.newServer(g.admitBytes(mux))
}

// admitBytes puts the byte gate in front of all routes. What it refuses has the shape
// that the path's clients read: a middleware for each shape, around the same mux.
func (g *gateway) admitBytes(mux *http.ServeMux) http.Handler {
	var behind [formats]http.Handler
	for f := range behind {
		behind[f] = httpgate.WithConfig(httpgate.Config{
			Gate:   g.hg.Bytes,
			Format: gate.Format(f),
			// A report must not count itself, and has a bound of its own.
			Skip: func(r *http.Request) bool { return isReport(r.URL.Path) },
			// The mux has not routed yet where the gate decides.
			Route:      func(r *http.Request) string { _, pattern := mux.Handler(r); return pattern },
			OnDecision: func(d httpgate.Decision) { g.decided(d.Method, d.Route, d.Waited, d.Err) },
		})(answeredFirst(mux))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		behind[formatOf(r.URL.Path)].ServeHTTP(w, r)
	})
}

// answeredFirst answers before the body has come where nobody reads it: to the reports,
// to the health check, and where the mux finds no route.
func answeredFirst(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// All routes that read bodies are of this form.
			if _, pattern := mux.Handler(r); pattern != http.MethodPost+" "+r.URL.Path {
				closeUnread(w, r)
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// onlyPost answers other methods on an API's path.
func onlyPost(a api) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", http.MethodPost)
		a.fail(w, r, a.takesPost())
	})
}

// echo reads the whole body into memory, which is what the byte gate is for.
func echo(w http.ResponseWriter, r *http.Request) {
	pause, err := parseHold(r.URL.Query().Get("hold"))
	if err != nil {
		badRequest(w, r, err.Error())
		return
	}
	body, err := io.ReadAll(r.Body)
	if httpgate.Refuse(w, r, err) {
		return // too large, too slow, or no room to grow
	}
	if err != nil {
		badRequest(w, r, "the body ends early or is not well-formed")
		return
	}
	if err := hold(r.Context(), pause); err != nil {
		panic(http.ErrAbortHandler) // the client has left: close, do not answer 200
	}
	writeJSON(w, http.StatusOK, digest(body))
}

func badRequest(w http.ResponseWriter, r *http.Request, text string) {
	closeUnread(w, r)
	http.Error(w, text, http.StatusBadRequest)
}

// linger is how long the rest of a body that nobody will read may take to arrive.
const linger = time.Second

// closeUnread lets the answer to a request whose body is not read to its end go out at
// once. Otherwise net/http would read on first, for as long as the client likes.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	over := r.ContentLength == 0
	if u := uploadOf(r); u != nil {
		over = u.over.Load()
	}
	if r.ProtoMajor == 1 && !over {
		w.Header().Set("Connection", "close")
		boundRest(w, time.Now().Add(linger))
	}
}

// boundRest ends at t what net/http reads of a body when the handler is done.
func boundRest(w http.ResponseWriter, t time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(t) // no deadlines: nothing to bound
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has left cannot be told
}
