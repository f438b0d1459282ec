package clientwrap_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
)

// chaos makes calls of all kinds to a back end of all kinds and knows what must hold.
type chaos struct {
	t    *testing.T
	rnd  func(n int) int
	tr   *clientwrap.Transport
	open sync.Map // bodies that nobody has closed yet
}

// some is a time of up to 10 s.
func (c *chaos) some() time.Duration { return time.Duration(c.rnd(10_000)) * time.Millisecond }

// trickle is a body that comes in pieces and takes its time, or that of its context.
type trickle struct {
	ctx    context.Context
	pieces int
	each   time.Duration
	end    error
	deaf   bool
	closed chan struct{}
	once   sync.Once
}

func (b *trickle) Read(p []byte) (int, error) {
	ended := b.ctx.Done()
	if b.deaf {
		ended = nil
	}
	select {
	case <-time.After(b.each):
	case <-ended:
		return 0, b.ctx.Err()
	case <-b.closed:
		return 0, io.ErrClosedPipe
	}
	if b.pieces--; b.pieces < 0 {
		return 0, b.end
	}
	return copy(p, "x"), nil
}

func (b *trickle) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

type writable struct {
	*trickle
	io.Writer
}

// serve is the base.
func (c *chaos) serve(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	ended := r.Context().Done()
	if c.rnd(4) == 0 {
		ended = nil // it is deaf
	}
	select {
	case <-time.After(c.some()):
	case <-ended:
		return nil, context.Cause(r.Context())
	}
	b := &trickle{ctx: r.Context(), pieces: c.rnd(4), each: c.some() / 4, end: io.EOF, deaf: c.rnd(3) == 0, closed: make(chan struct{})}
	switch c.rnd(12) {
	case 0:
		return nil, errBase
	case 1:
		return nil, nil
	case 2:
		return answer(r, 200, b), errBase
	case 3:
		panic("boom")
	case 4:
		return answer(r, 204, http.NoBody), nil
	case 5:
		return answer(r, 200, nil), nil
	case 6:
		b.end = errBase
	case 7:
		return answer(r, http.StatusSwitchingProtocols, writable{b, io.Discard}), nil
	case 8:
		resp := answer(r, http.StatusTooManyRequests, b)
		resp.Header.Set("Retry-After", fmt.Sprint(c.rnd(5)))
		return resp, nil
	}
	return answer(r, 200, b), nil
}

// call makes one call.
func (c *chaos) call() {
	ctx, end := context.WithCancelCause(context.Background())
	defer time.AfterFunc(time.Minute, func() { end(nil) }) // whatever was forgotten ends then
	switch c.rnd(4) {
	case 0:
		time.AfterFunc(c.some(), func() { end(errBase) })
	case 1:
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.some())
		defer time.AfterFunc(time.Minute, stop)
	}
	ctx = gate.WithClass(ctx, []gate.Class{gate.Interactive, gate.Default, gate.Bulk}[c.rnd(3)])
	body := newSpy(`{"model": "m"}`)
	r := request(c.t, ctx, body)
	if c.rnd(4) == 0 {
		ch := make(chan struct{})
		setCancel(r, ch)
		time.AfterFunc(c.some(), func() { close(ch) })
	}
	client := &http.Client{Transport: c.tr}
	if c.rnd(4) == 0 {
		client.Timeout = 1 + c.some()
	}
	defer func() {
		if p := recover(); p != nil {
			assert.Equal(c.t, "boom", p)
		}
		assert.EqualValues(c.t, 1, body.closed.Load(), "whether it was sent or not")
	}()
	resp, err := client.Do(r)
	if assert.Equal(c.t, err == nil, resp != nil); err == nil {
		c.open.Store(resp.Body, nil)
		c.end(resp)
	}
}

// end ends a call in one of many ways, or leaves it to its context.
func (c *chaos) end(resp *http.Response) {
	if w, ok := resp.Body.(io.Writer); ok {
		_, err := io.WriteString(w, "x")
		assert.True(c.t, err == nil || errors.Is(err, gate.MaxHold))
	}
	var all sync.WaitGroup
	how := c.rnd(8)
	if how&1 != 0 {
		all.Go(func() { _, _ = io.Copy(io.Discard, resp.Body) })
	}
	if how&2 != 0 {
		time.Sleep(c.some() / 4)
		all.Go(func() { _ = resp.Body.Close(); c.open.Delete(resp.Body) })
	}
	if how&4 != 0 {
		all.Go(func() { _ = resp.Body.Close(); c.open.Delete(resp.Body) })
	}
	all.Wait()
}

// G1, F: whatever calls, callers and back ends do, at the end nothing is held, nobody
// waits, nothing counts as unclosed, and (the bubble sees to that) no goroutine is left.
func TestEveryEnd(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				src := rand.New(rand.NewPCG(seed, 1))
				c := &chaos{t: t, rnd: func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return src.IntN(n)
				}}
				l := slots(t, 1+c.rnd(4), func(ic *inflight.Config) {
					ic.QueueTimeout, ic.MaxQueue = time.Duration(c.rnd(20))*time.Second, c.rnd(10)
				})
				cfg := clientwrap.Config{
					MaxHold: time.Duration(c.rnd(2)*(1+c.rnd(15))) * time.Second, ReleaseAtHeaders: c.rnd(4) == 0,
					AsError: c.rnd(2) == 0, ClassHeader: c.rnd(2) == 0,
				}
				if c.rnd(2) == 0 {
					cfg.Lane = clientwrap.LaneByModel("", "m")
				}
				c.tr = clientwrap.NewTransport(roundTrip(c.serve), l, cfg)
				for range 60 {
					go c.call()
					time.Sleep(c.some() / 10)
				}
				time.Sleep(time.Hour)
				assert.Equal(t, 0, queued(l))
				c.open.Range(func(b, _ any) bool { _ = b.(io.Closer).Close(); return true })
				synctest.Wait()
				assert.Equal(t, 0, inFlight(l), "%+v", cfg)
				assert.Zero(t, c.tr.Snapshot().Unclosed, "%+v", cfg)
				l.Close()
			})
		})
	}
}
