package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

func reasonOf(o waitq.Outcome) gate.Reason {
	switch o {
	case waitq.TimedOut:
		return gate.QueueTimeout
	case waitq.Hopeless:
		return gate.Deadline
	case waitq.Displaced:
		return gate.Displaced
	case waitq.Shed:
		return gate.ResourcePressure
	case waitq.Closed:
		return gate.ShuttingDown
	case waitq.Canceled:
		return gate.Canceled
	}
	return gate.AdmissionBusy
}

// shed completes and counts the rejection of a request that got no room.
func (b *Budget) shed(ctx context.Context, res waitq.Result, r *gate.Rejection, class int, cost int64) *gate.Rejection {
	r.Gate, r.Reason, r.Waited = name, reasonOf(res.Outcome), res.Waited
	if res.Outcome == waitq.Canceled {
		r.Cause = ctx.Err()
		if errors.Is(r.Cause, context.DeadlineExceeded) {
			r.Reason = gate.Deadline
		}
	}
	b.sheds.count(r.Reason)
	if r.Reason != gate.Canceled {
		r.RetryAfter = b.retryAfter(class, cost, res.Waited)
	}
	return r
}

// retryAfter is when a body of this cost may find room. Who has waited in vain has
// seen that it takes longer than that, and where no lease has ended yet, those that
// are out show how long one lasts at least.
func (b *Budget) retryAfter(class int, cost int64, waited time.Duration) time.Duration {
	least := waited
	if since := b.heavies.oldest(); since != 0 && !b.q.KnowsHold(class) {
		least = max(least, time.Duration(b.now()-since))
	}
	return jitter(max(b.q.RetryAfter(class, cost), min(least, 40*time.Second).Truncate(time.Second)))
}

// jitter adds 0 to 50 %, in whole seconds, so that those refused together do not
// come back together.
func jitter(d time.Duration) time.Duration {
	s := int64(d / time.Second)
	return time.Duration(s+rand.Int64N((s+1)/2+1)) * time.Second
}

// tooLarge returns a rejection for a body of n bytes that can never be admitted.
func (s *settings) tooLarge(n int64, factor float64) *gate.Rejection {
	switch {
	case n > int64(s.HardMaxBodyBytes):
		return &gate.Rejection{
			Reason: gate.PayloadTooLarge, Gate: name, Limit: int64(s.HardMaxBodyBytes), Unit: unit,
			Advice: "send a smaller body, or raise HardMaxBodyBytes",
		}
	case n > 0 && scale(n, factor) > s.limit:
		return &gate.Rejection{
			Reason: gate.BodyExceedsBudget, Gate: name, Limit: s.limit, Unit: unit,
			Advice: "the body can never fit: send a smaller one, or raise MaxInflightBytes",
		}
	}
	return nil
}
