package clientwrap

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// hold is the watch over an exchange that may not last longer than MaxHold.
type hold struct {
	ctx    context.Context // the request's
	cancel context.CancelCauseFunc
	timer  *time.Timer
	rej    *gate.Rejection
	told   atomic.Bool                   // gate.Observe has been called
	conn   atomic.Pointer[io.ReadCloser] // a protocol's connection, which no context ends
}

// watch starts the watch, and makes the request one that it can cancel.
func (x *exchange) watch() {
	in := x.req.Context()
	ctx, cancel := context.WithCancelCause(in)
	x.out = x.out.WithContext(ctx)
	most := x.t.config.MaxHold
	h := &hold{ctx: in, cancel: cancel, rej: &gate.Rejection{
		Reason: gate.MaxHold, Gate: "clientwrap", Lane: x.lane, Class: gate.ClassOf(in),
		Limit: max(1, most.Milliseconds()), Unit: "ms", RetryAfter: time.Second,
		Advice: "the call was ended: raise MaxHold, or ask for less in one call",
	}}
	x.held = &body{t: x.t, lease: x.lease, hold: h}
	h.timer = time.AfterFunc(most, x.held.cut)
}

// end ends the watch. Calling it again does nothing.
func (h *hold) end() {
	h.timer.Stop()
	h.cancel(nil)
}

// cut ends an exchange that has lasted too long.
func (b *body) cut() {
	if !b.state.CompareAndSwap(bodyOpen, bodyCut) {
		return
	}
	b.t.maxHolds.Add(1)
	b.t.unclosed.Add(1)
	h := b.hold
	if !h.told.Swap(true) { // there is no response head yet
		observe(h.ctx, b.t, b.lease, gate.Sample{Err: h.rej})
	}
	b.lease.Release()
	h.cancel(h.rej)
	if c := h.conn.Load(); c != nil {
		_ = (*c).Close() // its reader and writer hear of the cut
	}
}

// wasCut reports whether MaxHold has ended the exchange.
func (b *body) wasCut() bool { return b != nil && b.hold != nil && b.state.Load() == bodyCut }

// upgrade lets the watch end the connection behind the body.
func (b *body) upgrade() {
	if b.hold == nil {
		return
	}
	b.hold.conn.Store(&b.inner)
	if b.wasCut() {
		_ = b.inner.Close() // the cut may have come too early to see it
	}
}
