package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
)

// again reports whether an attempt that ended so is worth another one. Who refuses
// locally has made the call wait already: it is not.
func again(resp *http.Response, err error) bool {
	if err != nil {
		return clientwrap.Refused(nil, err) == nil
	}
	switch code := resp.StatusCode; {
	case resp.Header.Get("X-Should-Retry") == "false": // a back end says so, or headgate before it
		return false
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooManyRequests, code >= 500:
		return true
	}
	return false
}

// The pauses between attempts.
const (
	firstPause = 500 * time.Millisecond // it doubles from attempt to attempt
	mostPause  = 8 * time.Second
	// mostRetryAfter is as long as the limiter lets a lane pause.
	mostRetryAfter = time.Minute
)

// pauseAfter is how long to wait after the n-th attempt, which ended at now: what its
// answer asks for, or else twice as long each time, less up to a quarter, so that calls
// which failed together do not come back together.
func pauseAfter(n int, resp *http.Response, now time.Time) time.Duration {
	if d := retryAfter(resp, now); d > 0 {
		return min(d, mostRetryAfter)
	}
	d := mostPause
	if n < 5 {
		d = firstPause << (n - 1)
	}
	return d - rand.N(d/4)
}

// retryAfter is what an answer's Retry-After says, 0 where it says nothing.
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	if resp == nil {
		return 0
	}
	says := resp.Header.Get("Retry-After")
	if n, err := strconv.ParseInt(says, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(says); err == nil {
		return at.Sub(now)
	}
	return 0
}

// maxKept is the largest body that is kept in memory for another attempt.
const maxKept = 8 << 20

// errForgotten is for who wants to send a body again that is not kept any more.
var errForgotten = errors.New("the body is not kept any more")

// keepBody reads the body of a call that may be sent more than once, before it takes a
// slot, and returns the context of its attempts. A body above maxKept is passed on as it
// comes, and its call is made once. After an error it is closed.
func (k *logicalCall) keepBody(ctx context.Context) (context.Context, error) {
	r := k.out
	switch {
	case k.Attempts == 1, r.Body == nil, r.Body == http.NoBody, r.GetBody != nil:
		return ctx, nil
	case r.ContentLength > maxKept:
		k.once = true
		return ctx, nil
	}
	var begun bytes.Buffer
	begun.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // so much at least is admitted
	n, err := begun.ReadFrom(io.LimitReader(r.Body, maxKept+1))
	if err == nil && n > maxKept {
		k.once = true
		r.Body = joined{io.MultiReader(&begun, r.Body), r.Body}
		return ctx, nil
	}
	_ = r.Body.Close() // it was read, or is of no use
	if err != nil {
		return ctx, err
	}
	k.kept = new(keptBody)
	text := begun.Bytes()
	k.kept.text.Store(&text)
	r.GetBody = k.kept.open
	r.Body, _ = r.GetBody() // for who looks for the model; attempts have their own
	return apart(ctx), nil
}

// keptBody is a body that can be sent again until it is forgotten.
type keptBody struct{ text atomic.Pointer[[]byte] }

// open returns it from its beginning.
func (b *keptBody) open() (io.ReadCloser, error) {
	text := b.text.Load()
	if text == nil {
		return nil, errForgotten
	}
	return &sending{rest: *text}, nil
}

// forget leaves the body to who is sending it.
func (b *keptBody) forget() { b.text.Store(nil) }

// sending is a body on its way. A transport may hold it for as long as the answer
// lasts, so it lets go of the bytes when it is closed.
type sending struct {
	mu   sync.Mutex
	rest []byte
}

func (s *sending) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *sending) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = nil
	return nil
}

// apart returns a context for calls that do not end what their request holds: it ends
// with ctx and has its class and flow, but none of its leases. The byte gate would
// otherwise take the first answer for the last use of the body.
func apart(ctx context.Context) context.Context {
	var out context.Context = valueless{ctx}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil { // 1xx answers pass by it
		out = httptrace.WithClientTrace(out, trace)
	}
	in := gate.Request{}.In(ctx)
	if in.Flow != "" {
		out = gate.WithFlow(out, in.Flow, in.Weight)
	}
	return gate.WithClass(out, gate.ClassOf(ctx))
}

// beside is apart, but the tenant's lane hears how the back end answers. Its limit goes by
// that; it holds no body that the first answer would end.
func (g *gateway) beside(ctx context.Context) context.Context {
	out := apart(ctx)
	if g.hg == nil {
		return out
	}
	lease, _ := gate.LeaseOf(ctx, g.hg.Tenants)
	return lease.In(out, g.hg.Tenants)
}

// valueless is a context without its parent's values.
type valueless struct{ context.Context }

// Value returns nil.
func (valueless) Value(any) any { return nil }

// AfterFunc spares the context package a goroutine for each context below this one.
func (v valueless) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(v.Context, f) }
