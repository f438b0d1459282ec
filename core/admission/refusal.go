package admission

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// reject completes the rejection of a request that got no room, and sheds it.
func (b *Budget) reject(ctx context.Context, res waitq.Result, r *gate.Rejection, class int, cost int64) *gate.Rejection {
	r.Gate, r.Waited = name, res.Waited
	r.Reason, r.Cause = res.Refusal(ctx, gate.AdmissionBusy)
	if r.Reason != gate.Canceled {
		waited := res.Waited
		if r.Reason == gate.ResourcePressure {
			waited = max(waited, recovery)
		}
		r.RetryAfter = b.retryAfter(class, cost, waited)
	}
	return b.shed(r, cost)
}

// shed counts the refusal of what costs so much, and writes its line. No lock may be held.
func (b *Budget) shed(r *gate.Rejection, cost int64) *gate.Rejection {
	b.sheds.counts().Add(r.Reason)
	b.log.Refused(r, func() []slog.Attr {
		s := b.Snapshot()
		attrs := []slog.Attr{
			slog.Int64("cost", cost), slog.Int64("inflight_bytes", s.InflightBytes), slog.Int64("max_inflight_bytes", s.MaxInflightBytes),
			slog.Int("waiting", s.Waiting), slog.Int64("waiting_bytes", s.WaitingBytes), slog.Int64("queued_bytes", s.QueuedBytes),
			slog.Int64("heavy_inflight", s.HeavyInflight), slog.Int64("exempt_inflight", s.ExemptInflight), slog.Int64("decoded_bytes", s.DecodedBytes),
		}
		if b.pressure != nil {
			attrs = append(attrs, slog.Any("pressure", b.pressure.Snapshot()))
		}
		return attrs
	})
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
	return waitq.Jitter(max(b.q.RetryAfter(class, cost), min(least, 40*time.Second).Truncate(time.Second)))
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
