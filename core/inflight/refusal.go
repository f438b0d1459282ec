package inflight

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

const name = "inflight"

// reject is the error of a request that got no slot.
func (ln *lane) reject(ctx context.Context, t *ticket, class int, res waitq.Result) *gate.Rejection {
	c := ln.set.Load()
	r := &gate.Rejection{
		Gate: name, Lane: ln.key, Class: classOf(class), Waited: res.Waited, Limit: int64(c.maxInflight),
	}
	r.Reason, r.Advice = reasonOf(res.Outcome), adviceOf(res.Outcome)
	if t != nil {
		r.Waited = t.spend(res.Waited)
	}
	switch res.Outcome {
	case waitq.TimedOut:
		r.Position = res.Position
	case waitq.Canceled:
		r.Cause = ctx.Err()
		if errors.Is(r.Cause, context.DeadlineExceeded) {
			r.Reason = gate.Deadline
			r.Advice = "the caller's own deadline passed in the queue: give it more time, or raise MaxInflight"
		}
	}
	ln.sheds.count(r.Reason)
	if r.Reason != gate.Canceled {
		r.RetryAfter = jitter(ln.q.RetryAfter(class, 1))
	}
	return r
}

// reasons are all that a lane refuses for.
var reasons = [...]gate.Reason{
	gate.QueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.ShuttingDown, gate.Canceled,
}

// sheds counts refusals by reason.
type sheds [len(reasons)]atomic.Int64

func (s *sheds) count(r gate.Reason) {
	for i, x := range reasons {
		if x == r {
			s[i].Add(1)
		}
	}
}

// jitter adds 0 to 50 %, in whole seconds, so that those refused together do not
// come back together.
func jitter(d time.Duration) time.Duration {
	s := int64(d / time.Second)
	return time.Duration(s+rand.Int64N((s+1)/2+1)) * time.Second
}

func reasonOf(o waitq.Outcome) gate.Reason {
	switch o {
	case waitq.TimedOut:
		return gate.QueueTimeout
	case waitq.Hopeless:
		return gate.Deadline
	case waitq.Displaced:
		return gate.Displaced
	case waitq.Closed:
		return gate.ShuttingDown
	case waitq.Canceled:
		return gate.Canceled
	}
	return gate.QueueFull
}

func adviceOf(o waitq.Outcome) string {
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
		return ""
	}
	return "raise MaxInflight or MaxQueue, or reduce concurrent load on this lane"
}
