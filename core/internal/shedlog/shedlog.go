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

// patience is how long after the moment of the next line whoever was left out is told of
// without it. It is no multiple of every, so that in a flood no line has to make way.
const patience = 3 * every / 4

// reasons are those that have lines of their own; all others share the last place.
var reasons = [...]gate.Reason{
	gate.PayloadTooLarge, gate.BodyExceedsBudget, gate.CostExceedsLimit, gate.AdmissionBusy, gate.QueueFull,
	gate.TenantQueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.NoTarget, gate.ResourcePressure,
	gate.ShuttingDown, gate.SlowBody, gate.MaxHold, gate.SlotLost,
}

// Log writes the lines of one gate. Use New. All methods are safe for concurrent use.
type Log struct {
	epoch  time.Time
	to     atomic.Pointer[slog.Logger]
	closed atomic.Bool
	lines  [len(reasons) + 1]line
}

type line struct {
	next    atomic.Int64           // from when on the next may be written, since epoch
	leftOut atomic.Int64           // since the last
	rest    atomic.Pointer[origin] // of whom a timer tells that they were left out; nil = no timer runs
}

// origin is where refusals came from.
type origin struct {
	gate   string
	reason gate.Reason
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
		l.tellLater(at, r.Gate, r.Reason)
		return
	}
	attrs := attrsOf(r, at.leftOut.Swap(0))
	if detail != nil {
		attrs = append(attrs, detail()...)
	}
	to.LogAttrs(context.Background(), slog.LevelWarn, "request refused", attrs...)
}

// Close writes at once how many were left out since the last lines, and no timer writes
// after it. Refusals that come later have lines as before; of those that are left out
// then only a next line tells. Closing twice is no error.
func (l *Log) Close() {
	l.closed.Store(true)
	for i := range l.lines {
		at := &l.lines[i]
		if o := at.rest.Swap(nil); o != nil {
			l.tell(at, o)
		}
	}
}

// tellLater lets a timer tell of who is left out, unless one does or the log is closed.
func (l *Log) tellLater(at *line, gate string, reason gate.Reason) {
	if at.rest.Load() != nil || l.closed.Load() {
		return
	}
	o := &origin{gate, reason}
	if !at.rest.CompareAndSwap(nil, o) {
		return
	}
	time.AfterFunc(time.Duration(at.next.Load()-int64(time.Since(l.epoch)))+patience, func() {
		// The logger is the user's: here nobody else would keep its panic from ending the process.
		defer func() { _ = recover() }()
		if !at.rest.CompareAndSwap(o, nil) || l.closed.Load() {
			return // Close has told
		}
		// From here on, whoever is left out has another timer.
		if at.leftOut.Load() == 0 {
			return
		}
		now, next := int64(time.Since(l.epoch)), at.next.Load()
		if now < next || !at.next.CompareAndSwap(next, now+int64(every)) {
			l.tellLater(at, o.gate, o.reason) // there was a line meanwhile
			return
		}
		l.tell(at, o)
	})
}

// tell writes how many were left out.
func (l *Log) tell(at *line, o *origin) {
	to := l.to.Load()
	if to == nil || !to.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	if n := at.leftOut.Swap(0); n > 0 {
		to.LogAttrs(context.Background(), slog.LevelWarn, "more requests refused",
			slog.String("gate", o.gate), slog.String("reason", string(o.reason)), slog.Int64("left_out", n))
	}
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
