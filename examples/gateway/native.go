package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// What the frameworks share beside the routes' own work.

const (
	echoPath   = "/echo"
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

// apiAt returns the API that has a path.
func apiAt(path string) (api, bool) {
	for _, a := range apis {
		if a.path == path {
			return a, true
		}
	}
	for _, a := range []api{batchAPI, comboAPI, fusionAPI} {
		if a.path == path {
			return a, true
		}
	}
	return api{}, false
}

// calls returns what POST answers under the paths of the APIs. What a gate refuses is
// handed to refuse, which may find the framework's own context by nativeOf.
func (g *gateway) calls(refuse func(http.ResponseWriter, *http.Request, error) bool) map[string]http.Handler {
	m := map[string]http.Handler{}
	serve := func(a api, h http.Handler) { m[a.path] = g.admitted(a, h) }
	for _, a := range apis {
		serve(a, g.inLane(a, refuse, g.proxy(a, refuse)))
	}
	// These ask for their place in the lane when they know what they cost.
	serve(batchAPI, g.batches(refuse))
	serve(comboAPI, g.combos(refuse))
	serve(fusionAPI, g.fusions(refuse))
	return m
}

// pattern names the route that a framework has found under a path as net/http names it,
// so that one configuration means the same in front of all. It is "" where none takes
// the method.
func pattern(method, path string) string {
	_, isAPI := apiAt(path)
	switch {
	case method == http.MethodPost && (isAPI || path == echoPath):
		return http.MethodPost + " " + path
	case isAPI:
		return path
	case allowed(path) == allowGet && (method == http.MethodGet || method == http.MethodHead):
		return http.MethodGet + " " + path
	}
	return ""
}

const allowGet = "GET, HEAD"

// allowed lists the methods of a path that has a route.
func allowed(path string) string {
	switch path {
	case healthPath, readyPath:
		return allowGet
	}
	if isReport(path) {
		return allowGet
	}
	return http.MethodPost
}

// probes are the paths that whoever runs the gateway asks, and what they answer. A
// process that is short of memory is alive: a restart would only lose its requests.
func (g *gateway) probes() map[string]func() (status int, text string) {
	return map[string]func() (int, string){
		healthPath: func() (int, string) { return http.StatusOK, "ok\n" },
		readyPath: func() (int, string) {
			if g.hg != nil && !g.hg.Memory.Ready() {
				return http.StatusServiceUnavailable, "short of memory\n"
			}
			return http.StatusOK, "ready\n"
		},
	}
}

// answerFirst lets the answer to a request whose body no route reads go out before the
// body has come. route is its pattern.
func answerFirst(w http.ResponseWriter, r *http.Request, route string) {
	if r.ContentLength != 0 && route != http.MethodPost+" "+r.URL.Path {
		closeUnread(w, r)
	}
}

type nativeKey struct{}

// withNative returns a copy of r in which nativeOf finds c.
func withNative[C any](r *http.Request, c C) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), nativeKey{}, c))
}

// nativeOf panics where r comes from no withNative for a C.
func nativeOf[C any](r *http.Request) C { return r.Context().Value(nativeKey{}).(C) } //nolint:errcheck,forcetypeassert // see above

// refuseLater keeps a refusal where withNative says, for frameworks that take it as a
// handler's error.
func refuseLater(_ http.ResponseWriter, r *http.Request, err error) bool {
	var rej *gate.Rejection
	if !errors.As(err, &rej) {
		return false
	}
	*nativeOf[*error](r) = rej
	return true
}

// early sends a back end's informational answers to the server itself. A framework's
// writer would take the first for the answer, or keep it.
type early struct {
	http.ResponseWriter // the framework's
	server              http.ResponseWriter
}

func (w *early) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *early) WriteHeader(status int) {
	if status < 200 {
		w.server.WriteHeader(status)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// decided logs what a gate has decided about a request.
func (g *gateway) decided(method, route string, waited time.Duration, err error) {
	g.log.LogAttrs(context.Background(), slog.LevelDebug, "decision", slog.String("method", method),
		slog.String("route", route), slog.Duration("waited", waited), slog.Any("error", err))
}

// formats are the shapes in which refusals are answered. A framework has a middleware
// for each, since the byte gate stands in front of the routes.
const formats = gate.Anthropic + 1
