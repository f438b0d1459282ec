package gatehttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// one admits a request at a time, and puts its own reader around bodies. It is its
// only lease.
type one struct {
	held  bool
	asked []gate.Request
	lease gate.Holder // nil = itself
}

func (g *one) Acquire(_ context.Context, q gate.Request) (gate.Lease, error) {
	if g.asked = append(g.asked, q); g.held {
		return gate.Lease{}, refusal(gate.QueueFull)
	}
	g.held = true
	if g.lease != nil {
		return gate.NewLease(g.lease, 1), nil
	}
	return gate.NewLease(g, 1), nil
}
func (g *one) Release(uint64)              { g.held = false }
func (g *one) Live(uint64) bool            { return g.held }
func (g *one) Grow(uint64, int64) error    { return nil }
func (g *one) Shrink(uint64, int64)        {}
func (g *one) Observe(uint64, gate.Sample) {}
func (g *one) Waited(uint64) time.Duration { return 0 }

func (g *one) Body(_ uint64, rc io.ReadCloser, set func(time.Time) error) io.ReadCloser {
	return &timed{rc, set}
}

// timed moves the deadline at every read, as byte admission does.
type timed struct {
	io.ReadCloser
	set func(time.Time) error
}

func (b *timed) Read(p []byte) (int, error) {
	if err := b.set(time.Now().Add(time.Minute)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

func refusal(reason gate.Reason) *gate.Rejection {
	return &gate.Rejection{Reason: reason, Gate: "one", RetryAfter: 3 * time.Second}
}

func post(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/a", strings.NewReader(body))
}

// ask must be admitted.
func ask(t *testing.T, w http.ResponseWriter, r *http.Request, g gate.Gate) gatehttp.Admission {
	t.Helper()
	a, err := gatehttp.Ask(w, r, g, &gate.Request{}, r.RemoteAddr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A request is asked for once, handed on as a copy, and leaves with its lease.
func TestAdmission(t *testing.T) {
	g, w, r := new(one), httptest.NewRecorder(), post("body")
	a := ask(t, w, r, g)
	in := a.Enter(gate.OpenAI)
	if in == r || in.Body == r.Body || !a.Asked() || gatehttp.FormatOf(in) != gate.OpenAI || gatehttp.FormatOf(r) != gate.Problem {
		t.Errorf("entered as %p of %p, asked %v, format %v", in, r, a.Asked(), gatehttp.FormatOf(in))
	}
	want := gate.Request{Flow: "192.0.2.1", Weight: 1, Class: gate.Default, Method: "POST", Path: "/a", Bytes: 4}
	if len(g.asked) != 1 || g.asked[0] != want {
		t.Errorf("the gate was asked for %+v", g.asked)
	}
	again := ask(t, w, in, g)
	if again.Asked() || again.Enter(gate.Anthropic) != in {
		t.Error("a request that holds a lease was asked for again, or copied")
	}
	again.Leave()
	if !g.held {
		t.Error("the inner pass released the outer one's lease")
	}
	a.Leave()
	a.Leave()
	if g.held {
		t.Error("the lease did not leave")
	}

	none := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	a = ask(t, w, none, g)
	if in := a.Enter(gate.Problem); in == none || in.Body != http.NoBody || !g.held {
		t.Errorf("without a body it entered as %p of %p, with %v", in, none, in.Body)
	}
	if a.Leave(); g.held {
		t.Error("the lease without a body did not leave")
	}
}

// A second pass over a request whose first handler is done reads on where that one has
// stopped, with deadlines that work: frameworks keep the copy in their context.
func TestEnterAgain(t *testing.T) {
	g := new(one)
	first := ask(t, httptest.NewRecorder(), post("abcdef"), g)
	in := first.Enter(gate.Problem)
	p := make([]byte, 3)
	if _, err := io.ReadFull(in.Body, p); err != nil {
		t.Fatal(err)
	}
	first.Leave()
	if _, err := in.Body.Read(p); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("read after the handler's end: %v", err)
	}
	second := ask(t, httptest.NewRecorder(), in, g)
	rest, err := io.ReadAll(second.Enter(gate.Problem).Body)
	if string(rest) != "def" || err != nil {
		t.Errorf("the second pass read %q, %v", rest, err)
	}
	second.Leave()
}

// What is put around a body, or in place of its context, does not hide whether it was
// read: only an unread one closes the connection.
func TestPrepareCloses(t *testing.T) {
	for name, change := range map[string]func(*http.Request) *http.Request{
		"as it is": func(r *http.Request) *http.Request { return r },
		"wrapped in place": func(r *http.Request) *http.Request {
			r.Body = struct{ io.ReadCloser }{r.Body}
			return r
		},
		"another context": func(r *http.Request) *http.Request { return r.WithContext(context.Background()) },
		"asked again inside": func(r *http.Request) *http.Request {
			r.Body = struct{ io.ReadCloser }{r.Body}
			in, err := gatehttp.Acquire(httptest.NewRecorder(), r, new(one), gate.Request{})
			if err != nil {
				panic(err)
			}
			return in
		},
	} {
		for _, read := range []bool{true, false} {
			w := httptest.NewRecorder()
			a := ask(t, w, post("body"), new(one))
			r := change(a.Enter(gate.Problem))
			if read {
				if text, err := io.ReadAll(r.Body); string(text) != "body" || err != nil {
					t.Fatalf("%s: read %q, %v", name, text, err)
				}
				r = change(r)
			}
			if !gatehttp.Prepare(w, r, refusal(gate.NoTarget)) {
				t.Fatal("nothing is to be written")
			}
			if closes := w.Header().Get("Connection") == "close"; closes == read {
				t.Errorf("%s, read %v: closes %v", name, read, closes)
			}
			a.Leave()
		}
	}
	for _, r := range []*http.Request{httptest.NewRequest(http.MethodGet, "/", http.NoBody), post("")} {
		w := httptest.NewRecorder()
		if gatehttp.Prepare(w, r, refusal(gate.NoTarget)); w.Header().Get("Connection") != "" {
			t.Error("closed without a body")
		}
	}
	second := post("body")
	second.ProtoMajor = 2
	w := httptest.NewRecorder()
	if gatehttp.Prepare(w, second, refusal(gate.NoTarget)); w.Header().Get("Connection") != "" {
		t.Error("closed an HTTP/2 connection")
	}
}

// The headers of a refusal replace those of the answer that was planned.
func TestPrepareHeaders(t *testing.T) {
	for reason, retry := range map[gate.Reason]string{gate.QueueFull: "3", gate.PayloadTooLarge: ""} {
		w := httptest.NewRecorder()
		for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "ETag", "Last-Modified", "Retry-After", "Vary"} {
			w.Header().Set(name, "mine")
		}
		gatehttp.Prepare(w, post(""), refusal(reason))
		want := http.Header{"Content-Encoding": {"mine"}, "Vary": {"mine"}, gate.MarkerHeader: {string(reason)}}
		if retry != "" {
			want.Set("Retry-After", retry)
		}
		if got, want := fmt.Sprint(w.Header()), fmt.Sprint(want); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}

// asserting is a framework's writer: it has every method, and fails where what it wraps
// has not.
type asserting struct{ http.ResponseWriter }

func (w *asserting) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *asserting) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.ResponseWriter.(http.Hijacker).Hijack() // it panics on purpose
}

// hijackable is a writer with a connection.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.conn, nil, nil }

// To a client that has left nothing is written. Its connection ends, where there is one.
func TestPrepareCanceled(t *testing.T) {
	left := refusal(gate.Canceled)
	for _, w := range []http.ResponseWriter{
		httptest.NewRecorder(), &asserting{httptest.NewRecorder()}, &asserting{&asserting{httptest.NewRecorder()}},
	} {
		if gatehttp.Prepare(w, post("body"), left) || len(w.Header()) > 0 {
			t.Errorf("something is to be written: %v", w.Header())
		}
	}
	client, server := net.Pipe()
	defer client.Close()
	if gatehttp.Prepare(&asserting{&hijackable{httptest.NewRecorder(), server}}, post("body"), left) {
		t.Error("something is to be written")
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection lives: %v", err)
	}
}

// Only a gate's own rejection is told to the client.
func TestRefusal(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	rej := refusal(gate.Deadline)
	rej.Waited = time.Second
	for name, test := range map[string]struct {
		err    error
		ctx    context.Context
		reason gate.Reason
		waited time.Duration
	}{
		"rejection":                  {fmt.Errorf("wrapped: %w", rej), t.Context(), gate.Deadline, time.Second},
		"of somebody else's context": {context.Canceled, t.Context(), "gate_failed", 0},
		"of the request's context":   {fmt.Errorf("wrapped: %w", context.Canceled), gone, gate.Canceled, 0},
		"anything":                   {errors.New("secret"), gone, "gate_failed", 0},
	} {
		r := post("").WithContext(test.ctx)
		a, err := gatehttp.Ask(httptest.NewRecorder(), r, &refusing{test.err}, &gate.Request{}, "")
		got := gatehttp.Refusal(r, err)
		if got.Reason != test.reason || strings.Contains(got.Error(), "secret") || a.Waited() != test.waited || !a.Asked() {
			t.Errorf("%s: %v after %v, asked %v", name, got, a.Waited(), a.Asked())
		}
		a.Leave()
	}
}

type refusing struct{ err error }

func (g *refusing) Acquire(context.Context, gate.Request) (gate.Lease, error) {
	return gate.Lease{}, g.err
}

type uncomparable struct {
	gate.Gate
	_ []int
}

func TestCheck(t *testing.T) {
	for want, test := range map[string]struct {
		g gate.Gate
		f gate.Format
	}{
		"":                                      {new(one), gate.Anthropic},
		"Config.Gate is nil":                    {},
		"Config.Gate is nil ":                   {(*one)(nil), gate.Problem},
		"Config.Gate: gatehttp_test.uncomparab": {uncomparable{}, gate.Problem},
		"Config.Format: format 77":              {new(one), 77},
	} {
		err := gatehttp.Check(test.g, test.f)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Whatever a client makes of the method, few labels come of it.
func TestMethodLabel(t *testing.T) {
	for method, want := range map[string]string{"GET": "GET", "TRACE": "TRACE", "get": "other", "M1": "other", "PROPFIND": "other"} {
		g, r := new(one), post("")
		r.Method = method
		ask(t, httptest.NewRecorder(), r, g)
		if got := g.asked[0].Method; got != want {
			t.Errorf("%s is labelled %s", method, got)
		}
	}
}
