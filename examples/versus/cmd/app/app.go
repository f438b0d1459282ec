package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// app is what is behind the middleware, and counts what is in front of it and behind.
type app struct {
	with  string
	limit int

	mu      sync.Mutex
	arrived int // and not over
	inside  int
	bytes   int64 // of the bodies of those inside, as they declare them
}

// status is the body of GET /status.
type status struct {
	With          string `json:"with"`
	Limit         int    `json:"limit"` // requests inside at once
	Inflight      int    `json:"inflight"`
	InflightBytes int64  `json:"inflight_bytes"`
	Waiting       int    `json:"waiting"`
}

// handler returns the app's routes, POST /echo behind wrap and GET /status past it.
func (a *app) handler(wrap func(http.Handler) http.Handler) http.Handler {
	behind := wrap(http.HandlerFunc(a.echo))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		a.count(1, 0, 0)
		defer a.count(-1, 0, 0)
		behind.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.status()) })
	return mux
}

func (a *app) count(arrived, inside int, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.arrived += arrived
	a.inside += inside
	a.bytes += bytes
}

func (a *app) status() status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return status{With: a.with, Limit: a.limit, Inflight: a.inside, InflightBytes: a.bytes, Waiting: a.arrived - a.inside}
}

// maxHold bounds how long a client may ask to be held.
const maxHold = time.Hour

// echo reads the whole body into memory, as the gateway does without headgate.
func (a *app) echo(w http.ResponseWriter, r *http.Request) {
	size := max(r.ContentLength, 0) // -1 = not declared
	a.count(0, 1, size)
	defer a.count(0, -1, -size)
	var pause time.Duration
	if s := r.URL.Query().Get("hold"); s != "" {
		var err error
		if pause, err = time.ParseDuration(s); err != nil || pause < 0 || pause > maxHold {
			http.Error(w, fmt.Sprintf("hold is %.40q: want a duration from 0s to %s, such as 2s", s, maxHold), http.StatusBadRequest)
			return
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body ends early or is not well-formed", http.StatusBadRequest)
		return
	}
	if !hold(r.Context(), pause) {
		panic(http.ErrAbortHandler) // the client has left: close, do not answer 200
	}
	sum := sha256.Sum256(body)
	writeJSON(w, struct {
		Bytes  int    `json:"bytes"`
		SHA256 string `json:"sha256"`
	}{len(body), hex.EncodeToString(sum[:])})
}

// hold waits for d, as for a slow back end. It returns false when ctx ended first.
func hold(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has left cannot be told
}
