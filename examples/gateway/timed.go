package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

// timed bounds the attempts at a call to the back end in time and number.
type timed struct {
	// Timeout is how long an attempt may take, from when it has its slot to the end of
	// its answer, or to the head of one that is a stream. What the request's body takes
	// to be sent is part of it. Default 0s: no bound. At most 1h.
	Timeout time.Duration `yaml:"timeout"`
	// Attempts is how often a call is sent at most. Default 1. 1 to 10.
	Attempts int `yaml:"attempts"`
}

// untimed is what a gateway does that is told nothing: one attempt, without a bound.
func untimed() timed { return timed{Attempts: 1} }

func (t timed) validate() error {
	switch {
	case t.Timeout < 0 || t.Timeout > time.Hour:
		return fmt.Errorf("upstream.timeout is %s: want 0s (no bound) to 1h", t.Timeout)
	case t.Attempts < 1 || t.Attempts > 10:
		return fmt.Errorf("upstream.attempts is %d: want 1 to 10", t.Attempts)
	}
	return nil
}

// timedClient makes calls as an SDK does: each attempt has a time, and one that failed
// is followed by another. With headgate a call waits for its slot above all this, in
// Do, and its attempts are one logical call: later ones wait where the first would
// stand by now. No wait for a slot is in an attempt's time.
type timedClient struct {
	timed
	limiter *inflight.Limiter // nil = bare
	lane    func(*http.Request) string
	base    http.RoundTripper // what an attempt is sent by
	log     *slog.Logger
}

// newTimedClient returns one that sends through base, in the lanes of limiter, or
// without any where that is nil.
func newTimedClient(t timed, base http.RoundTripper, limiter *inflight.Limiter, lane func(*http.Request) string, log *slog.Logger) *timedClient {
	c := &timedClient{timed: t, limiter: limiter, lane: lane, base: clocked{base}, log: log}
	if limiter != nil {
		c.base = clientwrap.NewTransport(c.base, limiter, clientwrap.Config{Lane: laneOfAttempt, AsError: true})
	}
	return c
}

// RoundTrip makes the call r, in several attempts if it must. A refusal of the limiter
// is an error and ends the call.
func (c *timedClient) RoundTrip(r *http.Request) (*http.Response, error) {
	k := &logicalCall{timedClient: c, in: r, out: r.WithContext(r.Context()), begin: time.Now()}
	ctx, err := k.keepBody(r.Context())
	if err != nil {
		return nil, err
	}
	if c.limiter == nil {
		resp, err := k.run(ctx)
		return k.end(r.Context(), resp, err)
	}
	k.lane = c.lane(k.out)
	var resp *http.Response
	ran := false
	err = c.limiter.Do(ctx, k.lane, func(ctx context.Context) (err error) {
		ran = true
		resp, err = k.run(ctx) //nolint:bodyclose // it is the caller's
		return err
	})
	if !ran && k.out.Body != nil {
		_ = k.out.Body.Close() // nothing was sent
	}
	if err != nil && ctx.Err() != nil { // not a refusal: the client has left
		err = context.Cause(r.Context())
	}
	return k.end(r.Context(), resp, err)
}

// logicalCall is one call and its attempts.
type logicalCall struct {
	*timedClient
	in, out *http.Request // the caller's; what attempts are copies of
	lane    string
	kept    *keptBody // nil where it need not be kept
	once    bool      // it cannot be sent again
	begin   time.Time
}

// run makes attempts until one counts.
func (k *logicalCall) run(ctx context.Context) (*http.Response, error) {
	for n := 1; ; n++ {
		resp, err := k.attempt(ctx)
		if n == k.Attempts || k.once || ctx.Err() != nil || !again(resp, err) {
			return resp, err
		}
		pause := pauseAfter(n, resp, time.Now())
		k.logAttempt(ctx, n, resp, err, pause)
		if resp != nil {
			_ = resp.Body.Close() // it gives the slot back before the pause
		}
		if err := hold(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func (k *logicalCall) logAttempt(ctx context.Context, n int, resp *http.Response, err error, pause time.Duration) {
	why := slog.String("error", "")
	if resp != nil {
		why = slog.Int("status", resp.StatusCode)
	} else {
		why.Value = slog.StringValue(withoutQuotes(err))
	}
	k.log.LogAttrs(ctx, slog.LevelDebug, "another attempt", slog.Int("failed", n), why, slog.Duration("pause", pause))
}

// end is for what the last attempt has come to, which is the call's. The body's bytes,
// which the attempts have kept, may go back now; ctx is the one that holds them.
func (k *logicalCall) end(ctx context.Context, resp *http.Response, err error) (*http.Response, error) {
	if resp != nil {
		resp.Request = k.in
	}
	if k.kept == nil {
		return resp, err
	}
	k.kept.forget()
	switch {
	case resp != nil:
		gate.Observe(ctx, gate.Sample{FirstByte: max(time.Since(k.begin), 1), Status: resp.StatusCode})
	case clientwrap.Refused(nil, err) == nil:
		gate.Observe(ctx, gate.Sample{Err: err})
	}
	return resp, err
}

// attempt sends the call once. What it returns has its whole answer, unless that is
// a stream, long, or not bounded in time.
func (k *logicalCall) attempt(ctx context.Context) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &attempt{lane: k.lane, timeout: k.Timeout, cancel: cancel}
	out := k.out.WithContext(context.WithValue(ctx, attemptKey{}, a))
	if out.GetBody != nil {
		var err error
		if out.Body, err = out.GetBody(); err != nil {
			a.end()
			return nil, err
		}
	}
	resp, err := k.base.RoundTrip(out)
	if err != nil {
		a.end()
		return nil, cutBy(ctx, err)
	}
	resp.Body = &attemptBody{resp.Body, ctx, a}
	switch {
	case k.Timeout == 0:
	case isStream(resp):
		if !a.timer.Stop() {
			_ = resp.Body.Close() // cut just now
			return nil, context.Cause(ctx)
		}
	default:
		err = readWhole(resp)
	}
	if err != nil {
		_ = resp.Body.Close() // what there was is not worth passing on
		return nil, err
	}
	return resp, nil
}

// attempt is the clock of one attempt. It is for one goroutine at a time.
type attempt struct {
	lane    string
	timeout time.Duration
	cancel  context.CancelCauseFunc
	timer   *time.Timer // nil before start, and without a timeout
}

type attemptKey struct{}

func attemptOf(r *http.Request) *attempt {
	a, _ := r.Context().Value(attemptKey{}).(*attempt)
	return a
}

func laneOfAttempt(r *http.Request) string { return attemptOf(r).lane }

// start is for when the attempt has its slot.
func (a *attempt) start() {
	if a.timeout > 0 {
		a.timer = time.AfterFunc(a.timeout, func() { a.cancel(&timeoutError{a.timeout}) })
	}
}

// end is for when the attempt is over.
func (a *attempt) end() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.cancel(nil)
}

// clocked starts the clock of the attempts that it sends. It stands below the limiter.
type clocked struct{ base http.RoundTripper }

func (t clocked) RoundTrip(r *http.Request) (*http.Response, error) {
	attemptOf(r).start()
	return t.base.RoundTrip(r)
}

// timeoutError is the error of an attempt that took too long.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return "no answer within " + e.after.String() }
func (e *timeoutError) Timeout() bool { return true }

// cutBy returns err, or that the attempt of ctx took too long where that is what it
// comes from.
func cutBy(ctx context.Context, err error) error {
	if late := (*timeoutError)(nil); errors.As(context.Cause(ctx), &late) {
		return late
	}
	return err
}

// attemptBody is the body of an answer: the attempt is over with it.
type attemptBody struct {
	io.ReadCloser
	ctx     context.Context
	attempt *attempt
}

func (b *attemptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = cutBy(b.ctx, err)
	}
	return n, err
}

func (b *attemptBody) Close() error {
	defer b.attempt.end()
	return b.ReadCloser.Close()
}

// isStream reports whether an answer comes in events.
func isStream(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "text/event-stream"
}

// maxAnswer is the most bytes of an answer that are kept until it is whole.
const maxAnswer = 1 << 20

// readWhole reads an answer to its end, which gives the slot back. One that is longer
// than maxAnswer goes on as it comes, and may still be cut.
func readWhole(resp *http.Response) error {
	if resp.ContentLength > maxAnswer || resp.StatusCode < 200 {
		return nil
	}
	var begun bytes.Buffer
	n, err := begun.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case n > maxAnswer:
		resp.Body = joined{io.MultiReader(&begun, resp.Body), resp.Body}
		return nil
	}
	_ = resp.Body.Close() // it was read
	resp.Body = io.NopCloser(&begun)
	if n == 0 {
		resp.Body = http.NoBody
	}
	return nil
}

// joined is a body whose beginning was read before.
type joined struct {
	io.Reader
	io.Closer
}
