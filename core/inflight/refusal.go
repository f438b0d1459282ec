package inflight

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/shedlog"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

const name = "inflight"

// reject is the error of a request that got no slot.
func (ln *lane) reject(ctx context.Context, t *ticket, class int, res waitq.Result) *gate.Rejection {
	c := ln.set.Load()
	r := &gate.Rejection{
		Gate: name, Lane: ln.key, Class: classOf(class), Waited: res.Waited, Limit: int64(c.maxInflight),
	}
	r.Reason, r.Cause = res.Refusal(ctx, gate.QueueFull)
	r.Advice = adviceOf(res.Outcome, r.Reason)
	if t != nil {
		r.Waited = t.spend(res.Waited)
	}
	if res.Outcome == waitq.TimedOut {
		r.Position = res.Position
	}
	ln.sheds.counts().Add(r.Reason)
	if r.Reason != gate.Canceled {
		r.RetryAfter = waitq.Jitter(ln.q.RetryAfter(class, 1))
	}
	ln.limit.log.Refused(r, func() []slog.Attr {
		s := ln.q.Snapshot()
		return []slog.Attr{
			slog.Int("reserve", c.reserve), slog.Int64("inflight", s.Leases),
			slog.Int("queued", waiting(s)), slog.Float64("oldest_wait_s", s.OldestWait.Seconds()),
		}
	})
	return r
}

// reasons are all that a lane refuses for.
var reasons = [...]gate.Reason{
	gate.QueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.ShuttingDown, gate.Canceled,
}

// sheds counts refusals by reason.
type sheds [len(reasons)]atomic.Int64

func (s *sheds) counts() shedlog.Counts { return shedlog.Counts{Reasons: reasons[:], Numbers: s[:]} }

func adviceOf(o waitq.Outcome, reason gate.Reason) string {
	switch o {
	case waitq.TimedOut:
		return "raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane"
	case waitq.Hopeless:
		return "the deadline is nearer than a call on this lane takes: give it more time, or reduce concurrent load on this lane"
	case waitq.Displaced:
		return "another caller needed the place more: raise MaxQueue, or reduce concurrent load on this lane"
	case waitq.Closed:
		return "this process is shutting down: another one may make the call"
	case waitq.Canceled:
		if reason == gate.Deadline {
			return "the caller's own deadline passed in the queue: give it more time, or raise MaxInflight"
		}
		return ""
	}
	return "raise MaxInflight or MaxQueue, or reduce concurrent load on this lane"
}
