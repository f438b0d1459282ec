package clientwrap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// Transport is an http.RoundTripper that takes a slot of a limiter for every
// exchange. Use NewTransport. It is safe for concurrent use.
type Transport struct {
	base    http.RoundTripper
	limiter *inflight.Limiter
	config  Config

	host     atomic.Pointer[hostLane] // the last one asked for; most clients have one
	maxHolds atomic.Int64
	unclosed atomic.Int64
}

// NewTransport returns a transport that sends through base what limiter admits. nil is
// http.DefaultTransport. Transports over one limiter share its lanes. It panics, naming
// what is wrong, on a nil limiter, a negative MaxHold and an unknown Format, and on a
// base that is such a Transport already, whose lanes are the same: a call would wait for
// a second slot of the lane while it holds one. Where another RoundTripper stands
// between the two, nothing can see that.
func NewTransport(base http.RoundTripper, limiter *inflight.Limiter, c Config) *Transport {
	if limiter == nil {
		panic("clientwrap: NewTransport: the limiter is nil: nothing would be limited")
	}
	c.check()
	if base == nil {
		base = http.DefaultTransport
	}
	if below, ok := base.(*Transport); ok && below.limiter == limiter && below.config.Lane == nil && c.Lane == nil {
		panic("clientwrap: NewTransport: the base takes slots of the same lanes already: wrap it once")
	}
	return &Transport{base: base, limiter: limiter, config: c}
}

// Snapshot is what a transport counts beside its limiter.
type Snapshot struct {
	MaxHolds int64 `json:"max_hold_total"` // exchanges that MaxHold has ended
	Unclosed int64 `json:"unclosed"`       // bodies whose context or MaxHold has ended and that nobody has closed yet
}

// Snapshot returns the counters.
func (t *Transport) Snapshot() Snapshot {
	return Snapshot{MaxHolds: t.maxHolds.Load(), Unclosed: max(0, t.unclosed.Load())}
}

// CloseIdleConnections closes those of the base, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip waits for a slot of the request's lane, sends the request and returns the
// response, whose body holds the slot; see the package's comment. A base that returns
// neither a response nor an error, or both, is an error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.skips(req) {
		return t.base.RoundTrip(req)
	}
	x := exchange{t: t, req: req, out: req}
	if err := x.admit(); err != nil {
		return t.refuse(req, err)
	}
	return x.send()
}

// skips asks Skip. If that panics, the request's body is closed.
func (t *Transport) skips(req *http.Request) (skip bool) {
	if t.config.Skip == nil {
		return false
	}
	asked := false
	defer func() {
		if !asked && req.Body != nil {
			_ = req.Body.Close() // the request fails for another reason
		}
	}()
	skip = t.config.Skip(req)
	asked = true
	return skip
}

// exchange is one request on its way.
type exchange struct {
	t     *Transport
	req   *http.Request // the caller's
	out   *http.Request // the one to send: req or a copy
	lane  string
	lease gate.Lease
	held  *body // what MaxHold watches; nil without MaxHold
}

// admit waits for a slot. Unless it gets one, the request's body is closed.
func (x *exchange) admit() (err error) {
	admitted := false
	defer func() {
		if !admitted && x.out.Body != nil {
			_ = x.out.Body.Close() // the request fails for another reason
		}
	}()
	ctx, t := x.req.Context(), x.t
	if t.config.Lane != nil {
		x.out = x.req.WithContext(ctx)
		x.lane = t.config.Lane(x.out)
	}
	if x.lane == "" {
		x.lane = t.hostKey(x.req.URL)
	}
	if canceled := cancelOf(x.req); canceled != nil {
		l := &legacy{Context: ctx, canceled: canceled}
		defer l.end()
		ctx = l
	}
	x.lease, err = t.limiter.Acquire(ctx, gate.Request{Lane: x.lane, Retry: retried(x.req.Header)})
	admitted = err == nil
	return err
}

// retried reports whether an SDK of OpenAI or Anthropic says that this is not the
// first attempt.
func retried(h http.Header) bool {
	v := h["X-Stainless-Retry-Count"]
	if len(v) == 0 {
		return false
	}
	n, err := strconv.Atoi(v[0])
	return err == nil && n > 0
}

// send sends the request and hands the slot on to the response's body.
func (x *exchange) send() (resp *http.Response, err error) {
	t, done := x.t, false
	defer func() {
		if done {
			return
		}
		x.release() // the base or a gate that is told panics, or ends its goroutine
		if resp != nil && resp.Body != nil {
			_ = resp.Body.Close() // nobody gets it
		}
	}()
	if t.config.MaxHold > 0 {
		x.watch()
	}
	if t.config.ClassHeader {
		x.tag()
	}
	start := time.Now()
	got, err := t.base.RoundTrip(x.out)
	if resp, err = exactlyOne(t.base, got, err); err != nil {
		if sent(Refused(nil, err)) {
			x.observe(gate.Sample{Err: x.failure(err)})
		}
		wasCut := x.held.wasCut()
		x.release()
		done = true
		if wasCut {
			return t.refuse(x.req, x.held.hold.rej)
		}
		return nil, err
	}
	rej := Refused(resp, nil) // by a Transport below
	if sent(rej) {
		x.observe(gate.Sample{FirstByte: max(time.Since(start), 1), Status: resp.StatusCode})
	}
	if d := retryAfter(resp, time.Now()); d > 0 && rej == nil {
		t.limiter.Pause(x.lane, d)
	}
	if resp.Request == x.out {
		resp.Request = x.req
	}
	x.pass(resp)
	done = true
	return resp, nil
}

// sent reports whether the back end has to do with it: not if a gate of this process
// has refused the call further down, or its body. What MaxHold has cut had been sent.
func sent(rej *gate.Rejection) bool { return rej == nil || rej.Reason == gate.MaxHold }

// failure is err as gates are told of it. That the caller has left is no failure of the
// back end, whatever cause the context has for it or the base says: it is
// context.Canceled to them. A cause that is a timeout is one.
func (x *exchange) failure(err error) error {
	ctx := legacy{Context: x.req.Context(), canceled: cancelOf(x.req)}
	if !errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, context.Canceled) {
		return err
	}
	var late interface{ Timeout() bool }
	if errors.As(context.Cause(ctx.Context), &late) && late.Timeout() {
		return err
	}
	return errors.Join(context.Canceled, err)
}

// tag puts the class into a copy of the request.
func (x *exchange) tag() {
	if x.out == x.req {
		x.out = x.req.WithContext(x.req.Context())
	}
	h := x.out.Header.Clone()
	if h == nil {
		h = make(http.Header, 1)
	}
	h.Set(ClassHeader, gate.ClassOf(x.req.Context()).String())
	x.out.Header = h
}

// observe tells all gates that hold the request how it went, once.
func (x *exchange) observe(s gate.Sample) {
	if x.held == nil || !x.held.hold.told.Swap(true) {
		observe(x.req.Context(), x.t, x.lease, s)
	}
}

func observe(ctx context.Context, t *Transport, lease gate.Lease, s gate.Sample) {
	gate.Observe(lease.In(ctx, t.limiter), s)
}

// release gives the slot back where there is no body to hold it.
func (x *exchange) release() {
	if x.held != nil {
		x.held.over()
	}
	x.lease.Release()
}

// pass decides what of the response holds the slot, if anything.
func (x *exchange) pass(resp *http.Response) {
	inner := resp.Body
	if inner == nil || inner == http.NoBody || x.req.Method == http.MethodHead {
		x.release()
		return
	}
	b := x.held
	if x.t.config.ReleaseAtHeaders {
		x.lease.Release()
		if b == nil {
			return
		}
		b.hold.timer.Stop()
	}
	if b == nil {
		b = &body{t: x.t, lease: x.lease}
	}
	b.inner = inner
	switch {
	case x.t.config.ReleaseAtHeaders:
	case resp.StatusCode == http.StatusSwitchingProtocols:
		b.upgrade()
	default:
		b.watchContext(x.req, x.out)
	}
	resp.Body = b.as()
}

// exactlyOne makes an error of what a RoundTripper must not return.
func exactlyOne(base http.RoundTripper, resp *http.Response, err error) (*http.Response, error) {
	switch {
	case resp == nil && err == nil:
		return nil, fmt.Errorf("clientwrap: the base transport %T returned neither a response nor an error", base)
	case resp != nil && err != nil:
		if resp.Body != nil {
			_ = resp.Body.Close() // err says what went wrong
		}
		return nil, fmt.Errorf("clientwrap: the base transport %T returned a response and an error: %w", base, err)
	}
	return resp, err
}
