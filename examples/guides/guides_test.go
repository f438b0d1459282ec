package guides

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/clientwrap"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
)

// HTTP/2 windows that fit together: see containers.md.
func http2Server(h http.Handler) *http.Server {
	srv := &http.Server{Addr: ":8443", Handler: h, ReadHeaderTimeout: 10 * time.Second}
	srv.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          60,
		MaxReceiveBufferPerStream:     64 << 10,
		MaxReceiveBufferPerConnection: 60 * 64 << 10, // less than 4 MiB
	}
	return srv
}

// A body that grows in memory is paid for as it grows.
func decode(w http.ResponseWriter, r *http.Request, hg *headgate.Headgate, decoded func(io.Reader) (int64, error)) {
	lease, _ := gate.LeaseOf(r.Context(), hg.Bytes)
	n, err := decoded(r.Body)
	if httpgate.Refuse(w, r, err) {
		return
	}
	if err := lease.Grow(n); httpgate.Refuse(w, r, err) { // no room: 503, at once
		return
	}
	fmt.Fprintln(w, n, "bytes")
}

func Example_containers() {
	hg, err := headgate.Open(quiet(headgate.DefaultConfig()))
	if err != nil {
		log.Fatal(err)
	}
	srv := http2Server(httpgate.New(hg.Bytes)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decode(w, r, hg, func(body io.Reader) (int64, error) {
			n, err := io.Copy(io.Discard, body)
			return 10 * n, err
		})
	})))
	w := httptest.NewRecorder()
	srv.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("0123456789")))
	fmt.Print(w.Body)
	fmt.Println(hg.Shutdown(context.Background(), srv.Shutdown), hg.Bytes.Snapshot().InflightBytes)
	// Output:
	// 100 bytes
	// <nil> 0
}

// Who calls is known behind authentication, and there stands the tenants' gate.
func tenantsApp(hg *headgate.Headgate, tenantOf func(key string) (string, bool), app http.Handler) http.Handler {
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tenant, ok := tenantOf(r.Header.Get("Authorization"))
			if !ok {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(gate.WithFlow(r.Context(), tenant, 1))) // 2 = twice the share
		})
	}
	return httpgate.New(hg.Bytes)(authenticate(httpgate.New(hg.Tenants)(app)))
}

func Example_tenants() {
	c := headgate.DefaultConfig()
	c.Lanes.Mode = gate.Enforce       // the default, Shadow, only keeps books
	c.Lanes.VirtualLanes = true       // a queue of its own for each tenant, and probes
	c.Lanes.MaxQueueCount = 128       // may wait in it
	c.Lanes.MaxWait = 5 * time.Second // and for so long
	hg, err := headgate.Open(quiet(c))
	if err != nil {
		log.Fatal(err)
	}
	app := tenantsApp(hg, func(key string) (string, bool) { return "acme", key == "Bearer a" },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") }))
	for _, key := range []string{"Bearer a", "Bearer b"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Authorization", key)
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	s := hg.Tenants.Snapshot()
	fmt.Println(s.LaneCount, "lane,", s.Admitted, "admitted")
	_ = hg.Shutdown(context.Background(), nil)
	// Output:
	// 200 served
	// 401 who are you?
	// 1 lane, 1 admitted
}

// ask asks all targets that have room, and refuses where none has. See fanout.md.
func ask(ctx context.Context, hg *headgate.Headgate, targets []string, body []byte, call func(ctx context.Context, target string) string) ([]string, error) {
	costs := make([]int64, len(targets))
	for i := range targets {
		costs[i] = lanes.Price(lanes.Features{Bytes: int64(len(body)), Messages: 1})
	}
	room := hg.Tenants.Probe(ctx, costs...) // one question for all: they do not all see the same room
	var answers []string
	for i, target := range targets {
		if room[i] {
			answers = append(answers, call(ctx, target))
		}
	}
	if len(answers) == 0 {
		return nil, hg.Tenants.NoTarget(ctx, costs...)
	}
	return answers, nil
}

func Example_fanout() {
	c := headgate.DefaultConfig()
	c.Lanes.Mode, c.Lanes.VirtualLanes = gate.Enforce, true
	c.Lanes.MinLimit, c.Lanes.InitialLimit, c.Lanes.MaxLimit = 13, 13, 13
	hg, err := headgate.Open(quiet(c))
	if err != nil {
		log.Fatal(err)
	}
	ctx := gate.WithFlow(context.Background(), "acme", 1)
	lease, err := hg.Tenants.Acquire(ctx, gate.Request{Cost: 6}) // the parent's own, which a middleware takes
	if err != nil {
		log.Fatal(err)
	}
	answers, err := ask(lease.In(ctx, hg.Tenants), hg, []string{"large", "small", "tiny"}, []byte("{}"),
		func(_ context.Context, target string) string { return "from " + target })
	fmt.Println(answers, err)
	lease.Release()
	_ = hg.Shutdown(context.Background(), nil)
	// Output: [from large from small] <nil>
}

// Do waits above the client, so that the client's own timeout is the back end's alone.
func callAbove(ctx context.Context, hg *headgate.Headgate, client *http.Client, base string) (status string, err error) {
	err = hg.Outbound.Do(ctx, inflight.HostKey(base), func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := client.Do(req) // adopts the slot that Do has waited for
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		status = resp.Status
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	return status, err
}

func Example_outbound() {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer backend.Close()

	c := quiet(headgate.DefaultConfig())
	c.Inflight.MaxInflight = 6 // below what the back end serves at once without slowing down
	c.Inflight.QueueTimeout = 20 * time.Second
	hg, err := headgate.Open(c)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{
		Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{}),
		Timeout:   30 * time.Second, // in a RoundTripper the wait is part of it: above QueueTimeout
	}
	fmt.Println(callAbove(context.Background(), hg, client, backend.URL))
	for _, lane := range hg.Outbound.Snapshot().Lanes {
		fmt.Println(lane.Limit, "slots,", lane.Granted, "granted,", lane.Verdict)
	}
	client.CloseIdleConnections()
	_ = hg.Shutdown(context.Background(), nil)
	// Output:
	// 200 OK <nil>
	// 6 slots, 1 granted, idle
}

// A lane for each model, and one for all models that nobody has named.
func byModel(hg *headgate.Headgate, base string) http.RoundTripper {
	return clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{
		Lane: clientwrap.LaneByModel(base, "large", "small"),
	})
}

// What a call was refused for says what helps.
func explain(err error) string {
	var rej *gate.Rejection
	switch {
	case errors.Is(err, gate.QueueTimeout):
		return "the lane is full: raise MaxInflight if the back end has room, else send less"
	case errors.As(err, &rej):
		return string(rej.Reason)
	}
	return "not refused here"
}

func Example_refused() {
	c := headgate.DefaultConfig()
	c.Inflight.MaxInflight, c.Inflight.QueueTimeout = 1, time.Millisecond
	hg, err := headgate.Open(quiet(c))
	if err != nil {
		log.Fatal(err)
	}
	lease, _ := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: "a"})
	_, err = hg.Outbound.Acquire(context.Background(), gate.Request{Lane: "a"})
	fmt.Println(explain(err))
	lease.Release()
	_ = hg.Shutdown(context.Background(), nil)
	_ = byModel(hg, "https://api.example.com")
	// Output: the lane is full: raise MaxInflight if the back end has room, else send less
}

// Everything below the context is bulk, in whatever goroutine.
func sweep(ctx context.Context, items []string, call func(context.Context, string)) {
	ctx = gate.WithClass(ctx, gate.Bulk)
	var all sync.WaitGroup
	for _, item := range items {
		all.Go(func() { call(ctx, item) })
	}
	all.Wait()
}

// classOf is for callers whom you have authenticated, and trust to say what is urgent.
func classOf(r *http.Request) (gate.Class, error) {
	return gate.ParseClass(r.Header.Get(clientwrap.ClassHeader))
}

func Example_priorities() {
	sweep(context.Background(), []string{"one"}, func(ctx context.Context, item string) {
		fmt.Println(item, "is", gate.ClassOf(ctx))
	})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(clientwrap.ClassHeader, "urgent")
	_, err := classOf(r)
	fmt.Println(err)
	// Output:
	// one is bulk
	// class "urgent": want interactive, default or bulk
}

// reload puts a changed configuration in force, all of it or nothing.
func reload(hg *headgate.Headgate, change func(*headgate.Config)) error {
	c := headgate.DefaultConfig() // from the file again, in an app that has one
	change(&c)
	return hg.Reconfigure(c)
}

func Example_reload() {
	hg, err := headgate.Open(quiet(headgate.DefaultConfig()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reload(hg, func(c *headgate.Config) { c.Inflight.MaxInflight = 6; c.Lanes.MinLimit = 0 }))
	fmt.Println(hg.Outbound.Snapshot().Enabled)
	fmt.Println(reload(hg, func(c *headgate.Config) { c.Inflight.MaxInflight = 6 }))
	fmt.Println(hg.Outbound.Snapshot().Enabled)
	_ = hg.Shutdown(context.Background(), nil)
	// Output:
	// lanes: MinLimit is 0: want 1 to 1000000 (DefaultConfig has working values)
	// false
	// <nil>
	// true
}
