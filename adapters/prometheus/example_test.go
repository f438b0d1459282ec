package promgate_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// get prints those lines of a page that begin like one of these.
func get(h http.Handler, beginnings ...string) {
	page := httptest.NewRecorder()
	h.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		for _, b := range beginnings {
			if strings.HasPrefix(lines.Text(), b) {
				fmt.Println(lines.Text())
			}
		}
	}
}

// All gates' metrics, in a registry that the app serves.
func Example() {
	c := headgate.DefaultConfig()
	c.Inflight.MaxInflight = 6
	c.Logger = slog.New(slog.DiscardHandler)
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hg.Shutdown(context.Background(), nil) }()

	metrics, err := promgate.New(hg)
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	stop, err := metrics.Register(registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	_ = hg.Outbound.Do(context.Background(), "https://gw/v1|smart", func(context.Context) error {
		get(mux, "headgate_outbound_inflight", "headgate_outbound_queue_depth", "headgate_pressure_severity")
		return nil
	})
	// Output:
	// headgate_outbound_inflight{lane="https://gw/v1|smart"} 1
	// headgate_outbound_queue_depth{lane="https://gw/v1|smart",priority="bulk"} 0
	// headgate_outbound_queue_depth{lane="https://gw/v1|smart",priority="default"} 0
	// headgate_outbound_queue_depth{lane="https://gw/v1|smart",priority="interactive"} 0
	// headgate_pressure_severity 0
}

// A gate that was made by itself has its metrics too, by whatever names a dashboard knows.
func ExampleWithSubsystems() {
	c := inflight.DefaultConfig()
	c.MaxInflight = 6
	limiter, err := inflight.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	lease, err := limiter.Acquire(context.Background(), gate.Request{Lane: "https://gw/v1|smart"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()

	metrics, err := promgate.New(&headgate.Headgate{Outbound: limiter},
		promgate.WithNamespace("my-agent"), promgate.WithSubsystems(promgate.Subsystems{Outbound: "llm"}))
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics) // a prometheus.Collector like others
	get(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "my_agent_llm_inflight", "my_agent_llm_limit")
	// Output:
	// my_agent_llm_inflight{lane="https://gw/v1|smart"} 1
	// my_agent_llm_limit{lane="https://gw/v1|smart"} 6
}

// Two Headgates of one process, in one registry.
func ExampleWithConstLabels() {
	registry := prometheus.NewRegistry()
	for _, app := range []string{"chat", "batch"} {
		limiter, err := inflight.New(inflight.DefaultConfig())
		if err != nil {
			fmt.Println(err)
			return
		}
		defer limiter.Close()
		metrics, err := promgate.New(&headgate.Headgate{Outbound: limiter}, promgate.WithConstLabels(prometheus.Labels{"app": app}))
		if err != nil {
			fmt.Println(err)
			return
		}
		stop, err := metrics.Register(registry)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer stop()
	}
	get(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "headgate_outbound_enabled")
	// Output:
	// headgate_outbound_enabled{app="batch"} 0
	// headgate_outbound_enabled{app="chat"} 0
}
