package shedlog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// every is the least time between two lines of one reason.
const every = time.Second

// reasons are those that have lines of their own; all others share the last place.
var reasons = [...]gate.Reason{
	gate.PayloadTooLarge, gate.BodyExceedsBudget, gate.CostExceedsLimit, gate.AdmissionBusy, gate.QueueFull,
	gate.TenantQueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.NoTarget, gate.ResourcePressure,
	gate.ShuttingDown, gate.SlowBody, gate.MaxHold, gate.SlotLost,
}

// Log writes the lines of one gate. Use New. All methods are safe for concurrent use.
type Log struct {
	epoch time.Time
	to    atomic.Pointer[slog.Logger]
	lines [len(reasons) + 1]line
}

type line struct {
	next    atomic.Int64 // from when on the next may be written, since epoch
	leftOut atomic.Int64 // since the last
}

// New returns a log that writes to a logger, or nowhere if that is nil.
func New(to *slog.Logger) *Log {
	l := &Log{epoch: time.Now()}
	l.to.Store(to)
	return l
}

// Use makes the next lines go to a logger, or nowhere if that is nil.
func (l *Log) Use(to *slog.Logger) { l.to.Store(to) }

// Refused writes a line for r, unless one of the same reason is less than a second old.
// A caller that has left is not refused, so it gets no line. detail adds what decided; it
// is called only for a line that is written, and nil adds nothing. The caller must hold no
// lock: the logger is the user's.
func (l *Log) Refused(r *gate.Rejection, detail func() []slog.Attr) {
	to := l.to.Load()
	if to == nil || r.Reason == gate.Canceled || !to.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	at := &l.lines[place(r.Reason)]
	now, next := int64(time.Since(l.epoch)), at.next.Load()
	if now < next || !at.next.CompareAndSwap(next, now+int64(every)) {
		at.leftOut.Add(1)
		return
	}
	attrs := attrsOf(r, at.leftOut.Swap(0))
	if detail != nil {
		attrs = append(attrs, detail()...)
	}
	to.LogAttrs(context.Background(), slog.LevelWarn, "request refused", attrs...)
}

func place(r gate.Reason) int {
	for i, known := range reasons {
		if r == known {
			return i
		}
	}
	return len(reasons)
}

// attrsOf is what a rejection tells. Its Cause may be the user's and stays out.
func attrsOf(r *gate.Rejection, leftOut int64) []slog.Attr {
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs, slog.String("gate", r.Gate), slog.String("reason", string(r.Reason)))
	if r.Lane != "" {
		attrs = append(attrs, slog.String("lane", r.Lane))
	}
	if r.Class != 0 {
		attrs = append(attrs, slog.String("class", r.Class.String()))
	}
	if r.Limit > 0 {
		attrs = append(attrs, slog.Int64("limit", r.Limit))
	}
	if r.Unit != "" {
		attrs = append(attrs, slog.String("unit", r.Unit))
	}
	if r.Waited > 0 {
		attrs = append(attrs, slog.Float64("waited_s", r.Waited.Seconds()))
	}
	if r.Position > 0 {
		attrs = append(attrs, slog.Int("position", r.Position))
	}
	if r.RetryAfter > 0 {
		attrs = append(attrs, slog.Float64("retry_after_s", r.RetryAfter.Seconds()))
	}
	return append(attrs, slog.Int64("left_out", leftOut))
}
