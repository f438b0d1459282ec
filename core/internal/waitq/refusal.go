package waitq

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Refusal is how a gate says r, which is no grant: the reason, and the error of ctx
// where that is what ended the wait. full is the policy's own word for a request that
// found no place.
func (r Result) Refusal(ctx context.Context, full gate.Reason) (reason gate.Reason, cause error) {
	switch r.Outcome {
	case FlowFull:
		return gate.TenantQueueFull, nil
	case TimedOut:
		return gate.QueueTimeout, nil
	case Hopeless:
		return gate.Deadline, nil
	case Displaced:
		return gate.Displaced, nil
	case Shed:
		return gate.ResourcePressure, nil
	case Closed:
		return gate.ShuttingDown, nil
	case Canceled:
		if cause = ctx.Err(); errors.Is(cause, context.DeadlineExceeded) {
			return gate.Deadline, cause
		}
		return gate.Canceled, cause
	}
	return full, nil
}

// Jitter adds 0 to 50 % to what RetryAfter says, in whole seconds, so that those
// refused together do not come back together.
func Jitter(d time.Duration) time.Duration {
	s := int64(d / time.Second)
	return time.Duration(s+rand.Int64N((s+1)/2+1)) * time.Second
}
