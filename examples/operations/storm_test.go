package operations

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	promgate "github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/clientwrap"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// hang is how long a test waits for something that must happen.
const hang = time.Minute

// The lanes of the calls to the back end. Their names are made of what regular
// expressions take for something else.
const (
	small = "http://back-end.test/v1|small.model"
	large = "http://back-end.test/v1|large.model"
)

// storm is two processes' worth of Headgate under more load than they let in: one
// enforces everything, one keeps books and thinks that its memory is nearly used up.
type storm struct {
	services []*httptest.Server
}

// startStorm runs one until the test ends.
func startStorm(t *testing.T) *storm {
	t.Helper()
	var calls atomic.Int64
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(40 * time.Millisecond):
		case <-r.Context().Done():
		}
		if calls.Add(1)%4 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(backEnd.Close)

	enforcing := config(gate.Enforce)
	booking := config(gate.Shadow)
	booking.Pressure.LiveHeap.High, booking.Pressure.LiveHeap.Recovered = 1e-9, 0
	booking.Pressure.CollectInterval = booking.Pressure.Period
	s := &storm{services: []*httptest.Server{serve(t, enforcing, backEnd.URL), serve(t, booking, backEnd.URL)}}

	ctx, stop := context.WithCancel(context.Background())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	t.Cleanup(client.CloseIdleConnections)
	ended := make(chan struct{})
	const workers = 24
	for i := range workers {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				s.call(ctx, client, i)
			}
		}()
	}
	t.Cleanup(func() {
		stop()
		for range workers {
			<-ended
		}
	})
	return s
}

// config is one whose limits the load exceeds.
func config(mode gate.Mode) headgate.Config {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	c.Admission.Mode, c.Lanes.Mode, c.Inflight.Mode = mode, mode, mode
	c.Admission.MaxInflightBytes, c.Admission.QueueTimeout = 8<<20, 200*time.Millisecond
	c.Lanes.VirtualLanes, c.Lanes.MaxWait = true, 300*time.Millisecond
	c.Inflight.MaxInflight, c.Inflight.QueueTimeout = 2, 150*time.Millisecond
	return c
}

// serve runs a service: bytes, then tenants, then calls to the back end; and /metrics,
// which asks nobody.
func serve(t *testing.T, c headgate.Config, backEnd string) *httptest.Server {
	t.Helper()
	hg, err := headgate.Open(c)
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	collector, err := promgate.New(hg)
	require.NoError(t, err)
	_, err = collector.Register(registry)
	require.NoError(t, err)
	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{
		Lane: func(r *http.Request) string {
			if r.ContentLength > 1<<20 {
				return large
			}
			return small
		},
	})}
	chat := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if httpgate.Refuse(w, r, err) {
			return
		}
		hg.Tenants.Probe(r.Context(), 6, 6, 60)
		answer(w, r, client, backEnd, body)
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("POST /chat", httpgate.New(hg.Bytes)(authenticated(httpgate.New(hg.Tenants)(chat))))
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		assert.NoError(t, hg.Shutdown(ctx, func(context.Context) error { srv.Close(); return nil }))
		client.CloseIdleConnections()
	})
	return srv
}

// authenticated says who calls, and how urgent it is.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		class, err := gate.ParseClass(r.Header.Get("Class"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ctx := gate.WithFlow(gate.WithClass(r.Context(), class), r.Header.Get("Tenant"), 1)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// answer passes a call on, twice if it fails.
func answer(w http.ResponseWriter, r *http.Request, client *http.Client, backEnd string, body []byte) {
	ctx := inflight.WithCall(r.Context())
	for attempt := 1; ; attempt++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, backEnd, bytes.NewReader(body))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if attempt == 2 || resp.StatusCode != http.StatusInternalServerError {
			w.WriteHeader(resp.StatusCode)
			return
		}
	}
}

// call makes one call, of the i-th client. What becomes of it is in the metrics.
func (s *storm) call(ctx context.Context, client *http.Client, i int) {
	body := strings.Repeat("x", 1000)
	if i%4 == 0 {
		body = strings.Repeat("x", 3<<20)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.services[i%2].URL+"/chat", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Class", []string{"interactive", "default", "bulk"}[i%3])
	req.Header.Set("Tenant", fmt.Sprint("tenant-", i%5))
	resp, err := client.Do(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	select { // as clients should, though not for as long as they are told
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// exposed are the metrics that somebody exposes: the values of each one's labels.
type exposed map[string]map[string]map[string]bool

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"`)
)

// scrape adds what the service exposes.
func (e exposed) scrape(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", page)
	for _, m := range sampleLine.FindAllStringSubmatch(string(page), -1) {
		if e[m[1]] == nil {
			e[m[1]] = map[string]map[string]bool{}
		}
		for _, l := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if e[m[1]][l[1]] == nil {
				e[m[1]][l[1]] = map[string]bool{}
			}
			e[m[1]][l[1]][l[2]] = true
		}
	}
}

// has says whether any metric has the label's value. A signal that this machine does not
// know has thresholds all the same.
func (e exposed) has(label, value string) bool {
	for _, labels := range e {
		if labels[label][value] {
			return true
		}
	}
	return false
}

// missing says what expr uses of ours that does not exist.
func (e exposed) missing(expr string) string {
	for _, u := range uses(expr) {
		if !strings.HasPrefix(u.name, "headgate_") {
			continue // Prometheus's own
		}
		if e[u.name] == nil {
			return "no metric " + u.name
		}
		for label, values := range u.labels {
			if label == "job" || label == "instance" {
				continue // Prometheus's own
			}
			if e[u.name][label] == nil {
				return fmt.Sprintf("%s has no label %s", u.name, label)
			}
			for _, v := range values {
				if !e.has(label, v) {
					return fmt.Sprintf("no %s=%q", label, v)
				}
			}
		}
	}
	return ""
}

// A name that does not exist gives no error in a query: it gives nothing, for ever.
func TestNamesExist(t *testing.T) {
	s := startStorm(t)
	queries := readDashboard(t).queries()
	for _, r := range rules(t) {
		queries = append(queries, r.Expr)
	}
	queries = append(queries, runbookQueries(t)...)
	var missing []string
	defer func() { assert.Empty(t, missing) }()
	all := exposed{}                                                                                        // what has been seen so far
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { // real sockets
		for _, service := range s.services {
			all.scrape(t, service.URL)
		}
		missing = nil
		for _, q := range queries {
			if m := all.missing(q); m != "" {
				missing = append(missing, m+" in "+q)
			}
		}
		if len(missing) == 0 {
			break
		}
	}
	for _, wrong := range []string{`headgate_none`, `headgate_lanes_limit{lane="x"}`, `headgate_admission_sheds_total{reason=~"queue_timeout|queuefull"}`} {
		assert.NotEmpty(t, all.missing(wrong), "this test finds nothing: %s", wrong)
	}
}

// runbookQueries are the queries of the runbook.
func runbookQueries(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, block := range strings.Split(text(t, "runbook.md"), "```promql\n")[1:] {
		q, _, ok := strings.Cut(block, "\n```")
		require.True(t, ok)
		all = append(all, q)
	}
	require.NotEmpty(t, all)
	return all
}
