package clientwrap_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// openLimiter opens the limiter of the examples: two slots a lane, nobody waits.
func openLimiter() *inflight.Limiter {
	c := inflight.DefaultConfig()
	c.MaxInflight = 2
	c.QueueTimeout = 0
	l, err := inflight.New(c)
	if err != nil {
		panic(err)
	}
	return l
}

// startBackend starts a back end that streams its answers.
func startBackend() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
	}))
}

// The limiter is one of the gates that a service opens together, and Shutdown ends them
// in order: who waits is refused, the server stops, the calls that are open come to an end.
func Example() {
	backend := startBackend()
	defer backend.Close()
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second} // the service's own, behind hg.Bytes

	c := headgate.DefaultConfig()
	c.Inflight.MaxInflight = 8 // calls at once to each host, one of them kept for interactive ones
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})}
	resp, err := client.Get(backend.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Println(string(body))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = hg.Shutdown(ctx, srv.Shutdown)
	fmt.Println(err)
	// Output:
	// hello
	// <nil>
}

// A slot is held until the response's body is over, not until its head is here.
func ExampleNewTransport() {
	limiter, backend := openLimiter(), startBackend()
	defer limiter.Close()
	defer backend.Close()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, limiter, clientwrap.Config{})}

	resp, err := client.Get(backend.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("in flight:", limiter.Snapshot().Lanes[0].Inflight)
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	fmt.Println(string(body))
	fmt.Println("in flight:", limiter.Snapshot().Lanes[0].Inflight)
	// Output:
	// in flight: 1
	// hello
	// in flight: 0
}

// A refusal of the limiter is told from an answer of the back end.
func ExampleRefused() {
	limiter, backend := openLimiter(), startBackend()
	defer limiter.Close()
	defer backend.Close()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, limiter, clientwrap.Config{})}
	bulk := gate.WithClass(context.Background(), gate.Bulk)

	get := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(bulk, http.MethodGet, backend.URL, http.NoBody)
		if err != nil {
			return nil, err
		}
		return client.Do(req)
	}
	first, err := get()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Body.Close()

	second, err := get() // one slot is left, but it is kept for interactive calls
	if rej := clientwrap.Refused(second, err); rej != nil {
		fmt.Println("refused here:", rej.Reason, rej.Class, errors.Is(rej, gate.QueueTimeout))
	}
	if err == nil {
		fmt.Println(second.StatusCode, second.Header.Get(gate.MarkerHeader), second.Header.Get("X-Should-Retry"))
		_ = second.Body.Close()
	}
	fmt.Println("refused here:", clientwrap.Refused(first, nil) != nil)
	// Output:
	// refused here: queue_timeout bulk true
	// 503 queue_timeout false
	// refused here: false
}

// With AsError a refusal comes as an error.
func ExampleConfig_asError() {
	limiter := openLimiter()
	limiter.Close() // the process is shutting down
	client := &http.Client{Transport: clientwrap.NewTransport(nil, limiter, clientwrap.Config{AsError: true})}

	resp, err := client.Get("http://api.example.com/")
	fmt.Println(err)
	fmt.Println(clientwrap.Refused(resp, err).Reason)
	// Output:
	// Get "http://api.example.com/": refused locally by inflight: lane "http://api.example.com": shutting down (class default, limit 2): this process is shutting down: another one may make the call
	// shutting_down
}

// A back end that stalls holds its slot for MaxHold and no longer.
func ExampleConfig_maxHold() {
	limiter := openLimiter()
	defer limiter.Close()
	stalls := roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	transport := clientwrap.NewTransport(stalls, limiter, clientwrap.Config{MaxHold: 10 * time.Millisecond})

	resp, err := (&http.Client{Transport: transport}).Get("http://api.example.com/")
	fmt.Println(clientwrap.Refused(resp, err).Reason)
	_ = resp.Body.Close()
	fmt.Println("ended by MaxHold:", transport.Snapshot().MaxHolds)
	// Output:
	// max_hold
	// ended by MaxHold: 1
}

// The class travels to the next service, which asks its own gates in it.
func ExampleConfig_classHeader() {
	limiter := openLimiter()
	defer limiter.Close()
	next := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		class, err := gate.ParseClass(r.Header.Get(clientwrap.ClassHeader))
		fmt.Println(class, err) // httpgate.Config.Class returns it
	}))
	defer next.Close()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, limiter, clientwrap.Config{ClassHeader: true})}

	req, err := http.NewRequestWithContext(gate.WithClass(context.Background(), gate.Bulk), http.MethodGet, next.URL, http.NoBody)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	// Output: bulk <nil>
}

// Each model has a lane of its own; models that nobody has named share one.
func ExampleLaneByModel() {
	limiter, backend := openLimiter(), startBackend()
	defer limiter.Close()
	defer backend.Close()
	const base = "https://api.example.com/v1"
	client := &http.Client{Transport: clientwrap.NewTransport(to(backend), limiter, clientwrap.Config{
		Lane: clientwrap.LaneByModel(base, "small", "large"),
	})}

	for _, model := range []string{"small", "large", "made-up", "made-up-too"} {
		resp, err := client.Post(base+"/chat/completions", "application/json",
			strings.NewReader(`{"messages": [{"content": "which \"model\": \"large\"?"}], "model": "`+model+`"}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	for _, lane := range limiter.Snapshot().Lanes {
		fmt.Println(lane.Lane, lane.Granted)
	}
	// Output:
	// https://api.example.com/v1|large 1
	// https://api.example.com/v1|other 2
	// https://api.example.com/v1|small 1
}

// Do waits above the client, so that the client's timeout is the back end's alone.
func Example_do() {
	limiter, backend := openLimiter(), startBackend()
	defer limiter.Close()
	defer backend.Close()
	const base, model = "https://api.example.com/v1", "small"
	client := &http.Client{
		Timeout: 10 * time.Second, // of the call, not of the wait
		Transport: clientwrap.NewTransport(to(backend), limiter, clientwrap.Config{
			Lane: clientwrap.LaneByModel(base, model),
		}),
	}

	err := limiter.Do(context.Background(), inflight.LaneKey(base, model, []string{model}), func(ctx context.Context) error {
		body := strings.NewReader(`{"model": "small"}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", body)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		fmt.Println("in flight:", limiter.Snapshot().Lanes[0].Inflight) // the slot of Do, and no other
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	fmt.Println(err)
	// Output:
	// in flight: 1
	// <nil>
}

// CheckRetry keeps go-retryablehttp from retrying what was refused here.
func ExampleCheckRetry() {
	// In place of retryablehttp.DefaultRetryPolicy: retries every 503.
	policy := func(_ context.Context, resp *http.Response, err error) (bool, error) {
		return err != nil || resp.StatusCode == http.StatusServiceUnavailable, nil
	}
	checkRetry := clientwrap.CheckRetry(policy) // retryablehttp.Client.CheckRetry

	limiter := openLimiter()
	limiter.Close()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, limiter, clientwrap.Config{})}
	resp, err := client.Get("http://api.example.com/")
	fmt.Println(checkRetry(context.Background(), resp, err))
	_ = resp.Body.Close()

	fmt.Println(checkRetry(context.Background(), &http.Response{StatusCode: http.StatusServiceUnavailable}, nil))
	// Output:
	// false <nil>
	// true <nil>
}

// to sends everything to the back end, whatever the URL says.
func to(backend *httptest.Server) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host = "http", backend.Listener.Addr().String()
		return http.DefaultTransport.RoundTrip(out)
	})
}

// roundTrip is a http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
