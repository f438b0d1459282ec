// Command nethttp is a small service on net/http behind headgate: bytes are admitted before
// anybody is authenticated, the tenant's lane stands behind that, urgent and bulk calls go
// to a back end, and the end is orderly.
package main

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/examples/apps/internal/app"
)

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, ok := app.TenantOf(r.Header.Get("Authorization"))
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(gate.WithFlow(httpgate.Context(r), tenant, 1)))
	})
}

func main() {
	hg := app.Open()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})}
	handle := func(class gate.Class) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			resp, err := app.Forward(gate.WithClass(httpgate.Context(r), class), client, r.Body)
			if httpgate.Refuse(w, r, err) {
				return
			}
			if err != nil {
				http.Error(w, "the back end failed", http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(hg.Snapshot()) // a client that has left cannot be told
	})
	mux.HandleFunc("POST /chat", handle(gate.Interactive))
	mux.HandleFunc("POST /batch", handle(gate.Bulk))
	page, metrics := app.Reports(hg)
	defer page.Close()
	root := http.NewServeMux() // the reports ask no gate
	root.Handle("/headgate/", page)
	root.Handle("GET /metrics", metrics)
	root.Handle("/", httpgate.New(hg.Bytes)(authenticate(httpgate.New(hg.Tenants)(mux))))
	srv := &http.Server{Addr: app.Addr(), ReadHeaderTimeout: 10 * time.Second, Handler: root}
	go func() { app.Served(srv.ListenAndServe()) }()
	app.ShutDown(hg, srv.Shutdown)
}
