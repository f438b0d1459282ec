package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/monitor"
)

// The page and the reports stand below a path that ends with a slash.
func ExampleNew() {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := monitor.New(hg, monitor.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	mux := http.NewServeMux()
	mux.Handle("/headgate/", m)

	srv := httptest.NewServer(mux) // on 127.0.0.1, so that this client may look
	defer srv.Close()
	for _, path := range []string{"", "status", "history", "metrics"} {
		resp, err := http.Get(srv.URL + "/headgate/" + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	// Output:
	// 200 text/html; charset=utf-8
	// 200 application/json
	// 200 application/json
	// 404 text/plain; charset=utf-8
}

// Where the service is reached through a proxy, it says itself who may look. A Headgate
// does not need to have all gates.
func ExampleConfig_authorize() {
	limit := inflight.DefaultConfig()
	limit.MaxInflight = 6
	outbound, _ := inflight.New(limit)
	defer outbound.Close()

	c := monitor.DefaultConfig()
	c.Title = "billing, eu-1"
	c.Authorize = func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return monitor.Loopback(r) || user == "ops" && password == os.Getenv("OPS_PASSWORD") && password != ""
	}
	m, err := monitor.New(&headgate.Headgate{Outbound: outbound}, c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()

	r := httptest.NewRequest(http.MethodGet, "https://status.example.com/headgate/status", nil)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
	// Output: 403 headgate: not allowed
}

// A program reads the reports as well as the page does.
func ExampleHandler_ServeHTTP() {
	limit := inflight.DefaultConfig()
	limit.MaxInflight = 6
	outbound, _ := inflight.New(limit)
	defer outbound.Close()
	m, _ := monitor.New(&headgate.Headgate{Outbound: outbound}, monitor.DefaultConfig())
	defer m.Close()
	srv := httptest.NewServer(http.StripPrefix("/gates", m))
	defer srv.Close()

	slot, _ := outbound.Acquire(context.Background(), gate.Request{Lane: "llm"})
	defer slot.Release()
	resp, err := http.Get(srv.URL + "/gates/inflight")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	var now inflight.Snapshot
	if err := json.NewDecoder(resp.Body).Decode(&now); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(now.Lanes[0].Lane, now.Lanes[0].Inflight, "of", now.Lanes[0].Limit, now.Lanes[0].Verdict)
	// Output: llm 1 of 6 busy
}
