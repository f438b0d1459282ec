// Package app is what the small programs beside it have in common: who may call, which
// back end is called, and when it ends.
//
// In the directory examples:
//
//	go run ./upstream -addr 127.0.0.1:8081 &
//	HEADGATE_MAX_INFLIGHT=8 go run ./apps/gin &
//	curl -H 'Authorization: Bearer key-of-7' -d '{"model": "m", "messages": []}' http://127.0.0.1:8080/chat
package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	promgate "github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/clientwrap"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/monitor"
)

// Addr is where to listen: ADDR, by default 127.0.0.1:8080.
func Addr() string { return cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080") }

// Open opens the gates with the defaults and what HEADGATE_* variables set over them.
// HEADGATE_MAX_INFLIGHT=8, for example, lets eight calls be open to the back end at once.
func Open() *headgate.Headgate {
	config, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	hg, err := headgate.Open(config)
	if err != nil {
		log.Fatal(err)
	}
	return hg
}

// Reports returns the live page over hg, which answers clients on this machine only, and
// its metrics for Prometheus. The page is closed at the end.
func Reports(hg *headgate.Headgate) (page *monitor.Handler, metrics http.Handler) {
	page, err := monitor.New(hg, monitor.DefaultConfig())
	if err != nil {
		log.Fatal(err)
	}
	collector, err := promgate.New(hg)
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if _, err := collector.Register(registry); err != nil {
		log.Fatal(err)
	}
	return page, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// TenantOf stands for the app's authentication.
func TenantOf(authorization string) (tenant string, ok bool) {
	tenant, ok = map[string]string{"Bearer key-of-7": "tenant-7"}[authorization]
	return tenant, ok
}

// Forward sends a body to the back end at UPSTREAM. A refusal of this process is a
// *gate.Rejection in the error.
func Forward(ctx context.Context, client *http.Client, body io.Reader) (*http.Response, error) {
	upstream := cmp.Or(os.Getenv("UPSTREAM"), "http://127.0.0.1:8081/v1/chat/completions")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if rej := clientwrap.Refused(resp, err); rej != nil {
		if resp != nil {
			_ = resp.Body.Close() // it is made here: nothing can fail
		}
		return nil, rej // refused here, not by the back end
	}
	if err != nil && ctx.Err() == nil {
		log.Print("the back end did not answer: ", err)
	}
	return resp, err
}

// Served ends the program when its server has failed.
func Served(err error) {
	if !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}

// ShutDown waits until the program is told to end. Then it refuses who waits, stops the
// server and gives those that run ten seconds.
func ShutDown(hg *headgate.Headgate, stop func(context.Context) error) {
	told, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	<-told.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := hg.Shutdown(ctx, stop); err != nil {
		log.Print(err)
	}
}
