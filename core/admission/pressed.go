package admission

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
	"github.com/headgate-go/headgate/core/pressure"
)

const (
	// highWait is the part of QueueTimeout that is left under pressure.
	highWait = 4
	// recovery is the least Retry-After of a body that pressure has refused: the severity
	// takes some samples to fall.
	recovery = 5 * time.Second

	closedAdvice  = "this process is shutting down: another one may serve the request"
	pressedAdvice = "the process is close to its memory limit: send the body again later, raise the limit, or lower MaxInflightBytes"
)

// press puts a severity in force.
func (b *Budget) press(s pressure.Severity) {
	b.severity.Store(uint32(s))
	b.Refresh()
}

// seen is the severity to go by: that of the monitor, which tells nobody when it is closed,
// else the one that was put in force.
func (b *Budget) seen() pressure.Severity {
	if b.pressure != nil {
		return b.pressure.Severity()
	}
	return pressure.Severity(b.severity.Load())
}

// sheds reports whether bodies of a class are refused whether or not there is room.
func (s *settings) sheds(class int) bool { return class == heavy && s.severity == pressure.Critical }

// wait is how long a body may wait for room.
func (s *settings) wait() time.Duration {
	if s.severity >= pressure.High {
		return s.QueueTimeout / highWait
	}
	return s.QueueTimeout
}

// pressed is the rejection of a body for which it is not asked whether there is room.
func (b *Budget) pressed(ctx context.Context, class int, cost int64) *gate.Rejection {
	res, advice := waitq.Result{Outcome: waitq.Shed}, pressedAdvice
	switch { // who has left is told so, and who came too late, too
	case ctx.Err() != nil:
		res.Outcome = waitq.Canceled
	case b.closed.Load():
		res.Outcome, advice = waitq.Closed, closedAdvice
	}
	return b.reject(ctx, res, &gate.Rejection{Advice: advice}, class, cost)
}
