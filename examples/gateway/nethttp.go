package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
)

// netHTTP serves the routes with net/http alone.
func netHTTP(g *gateway) server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", echo)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, g.status())
	})
	if g.hg == nil {
		return g.newServer(mux)
	}
	admit := httpgate.WithConfig(httpgate.Config{
		Gate: g.hg.Bytes,
		// The status must not count itself.
		Skip: func(r *http.Request) bool { return r.URL.Path == statusPath },
		// The mux has not routed yet where the gate decides.
		Route: func(r *http.Request) string { _, pattern := mux.Handler(r); return pattern },
		OnDecision: func(d httpgate.Decision) {
			g.log.LogAttrs(context.Background(), slog.LevelDebug, "decision", slog.String("method", d.Method),
				slog.String("route", d.Route), slog.Duration("waited", d.Waited), slog.Any("error", d.Err))
		},
	})
	return g.newServer(admit(mux))
}

// echo reads the whole body into memory, which is what the byte gate is for.
func echo(w http.ResponseWriter, r *http.Request) {
	pause, err := parseHold(r.URL.Query().Get("hold"))
	if err != nil {
		badRequest(w, err.Error())
		return
	}
	body, err := io.ReadAll(r.Body)
	if httpgate.Refuse(w, r, err) {
		return // too large, too slow, or no room to grow
	}
	if err != nil {
		badRequest(w, "the body ends early or is not well-formed")
		return
	}
	if err := hold(r.Context(), pause); err != nil {
		panic(http.ErrAbortHandler) // the client has left: close, do not answer 200
	}
	writeJSON(w, digest(body))
}

// badRequest closes the connection, because net/http would wait for the rest of the
// body before it answers.
func badRequest(w http.ResponseWriter, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, http.StatusBadRequest)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has left cannot be told
}
