package main

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// server is what a framework's app must be able to do. An *http.Server can.
type server interface {
	// Serve answers what ln accepts. It returns when it fails, or after Shutdown.
	Serve(ln net.Listener) error
	// Shutdown stops accepting and waits for the requests that run until ctx ends.
	Shutdown(ctx context.Context) error
	// Close cuts the requests that run.
	Close() error
}

// frameworks are the ways to serve the routes, one file each. All serve the same:
//
//	POST /echo?hold=2s     reads the body into memory, holds it, answers its size and digest
//	GET /healthz           answers 200 whatever the load
//	GET /readyz            answers 503 once the memory pressure has been critical for a while
//	GET /headgate/         shows all that live; this and what follows asks no gate
//	GET /headgate/status   answers the gates' snapshots
//	GET /headgate/inflight the same for the outbound calls alone
//	GET /headgate/history  answers what the page draws
//	GET /metrics           answers the same for Prometheus
//	POST the paths of apis passes the call on, once its key is known
//	POST /v1/batch         makes many such calls at once, as bulk
//	POST /v1/combo         makes one of several calls, the first that succeeds
//	POST /v1/fusion        makes all of several calls that have room
var frameworks = map[string]func(*gateway) server{
	"echo":    labstackEcho,
	"fiber":   gofiber,
	"gin":     ginGonic,
	"nethttp": netHTTP,
}

func frameworkNames() string {
	return strings.Join(slices.Sorted(maps.Keys(frameworks)), ", ")
}

// newServer bounds what a client can take without sending a request. ReadTimeout
// and WriteTimeout are left out: they would cut long uploads. The byte gate ends
// slow senders instead (body_idle, body_timeout, min_body_rate).
func (g *gateway) newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
		// It would read the bodies of "OPTIONS *" without asking h, for ever.
		DisableGeneralOptionsHandler: true,
	}
}
