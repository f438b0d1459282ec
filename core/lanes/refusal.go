package lanes

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/shedlog"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

const (
	name = "lanes"
	unit = "cost units"
)

// refused gives back what a request has that got nothing, and says why.
func (c *Controller) refused(ctx context.Context, s *settings, r *gate.Request, w *waitq.Request, res waitq.Result, rec *lease, ln *lane) (gate.Lease, error) {
	if rec.start != 0 {
		c.mu.Lock()
		c.untimeLocked()
		c.mu.Unlock()
	}
	rec.forget()
	c.records.rest.Put(rec)
	if ln != nil {
		ln.refs.Add(-1)
	}
	if now := c.set.Load(); now.Mode != gate.Enforce && res.Outcome != waitq.Canceled {
		return c.Acquire(ctx, *r) // the mode changed while r was on its way to the queue
	}
	return gate.Lease{}, c.shed(c.reject(ctx, s, w, res))
}

// reject is the error of a request that got no room. w is what waited, or would have.
func (c *Controller) reject(ctx context.Context, s *settings, w *waitq.Request, res waitq.Result) *gate.Rejection {
	r := &gate.Rejection{
		Gate: name, Class: classOf(w.Class), Waited: res.Waited, Position: res.Position, Limit: c.limit.Load(), Unit: unit,
	}
	if s.VirtualLanes {
		r.Lane = c.id(w.Flow)
	}
	r.Reason, r.Cause = res.Refusal(ctx, gate.QueueFull)
	r.Advice = advice(res.Outcome, r.Reason)
	if r.Reason != gate.Canceled {
		r.RetryAfter = c.retryAfter(w.Class, w.Cost)
	}
	return r
}

// shed counts a refusal and writes its line.
func (c *Controller) shed(r *gate.Rejection) *gate.Rejection {
	c.sheds.counts().Add(r.Reason)
	c.log.Refused(r, func() []slog.Attr {
		q := c.q.Snapshot()
		waiting := 0
		for _, n := range q.Waiting {
			waiting += n
		}
		return []slog.Attr{
			slog.Int64("inflight_cost", q.InUse), slog.Int("queued_count", waiting), slog.Int64("queued_cost", q.Queued),
			slog.Float64("oldest_wait_s", q.OldestWait.Seconds()),
			slog.String("pressure_severity", c.seen().String()),
		}
	})
	return r
}

// retryAfter is when a request may find room. Most of those that did not queue are known
// to the queue as of class 0.
func (c *Controller) retryAfter(class int, cost int64) time.Duration {
	if !c.q.KnowsHold(class) {
		class = 0
	}
	return waitq.Jitter(c.q.RetryAfter(class, cost))
}

func classOf(i int) gate.Class { return gate.Class(i) + gate.Interactive }

func advice(o waitq.Outcome, reason gate.Reason) string {
	switch o {
	case waitq.FlowFull:
		return "this tenant has as much waiting as it may: send less at once, or raise MaxQueueCount or MaxQueueCost"
	case waitq.TimedOut:
		return "raise MaxWait, or send less to this back end"
	case waitq.Hopeless:
		return "the deadline is nearer than a request takes: give it more time, or send less to this back end"
	case waitq.Displaced:
		return "another caller needed the place more: raise MaxQueueCount or MaxQueueCost, or send less to this back end"
	case waitq.Closed:
		return "this process is shutting down: another one may serve the request"
	case waitq.Canceled:
		if reason == gate.Deadline {
			return "the caller's own deadline passed in the queue: give it more time"
		}
		return ""
	}
	return "raise MaxQueueCount or MaxQueueCost, or send less to this back end"
}

// tooDear is the error of a request that costs more than there can ever be.
func (c *Controller) tooDear(ctx context.Context, s *settings, r *gate.Request) *gate.Rejection {
	in := r.In(ctx)
	rej := &gate.Rejection{
		Reason: gate.CostExceedsLimit, Gate: name, Class: classOf(index(in.Class)), Limit: s.most, Unit: unit,
		Advice: "the request can never be admitted: ask for less, or raise MaxLimit",
	}
	if s.VirtualLanes {
		rej.Lane = c.LaneID(tenantOf(&in))
	}
	return c.shed(rej)
}

// shutDown is the error of a request that comes after Close without a queue to tell it.
func (c *Controller) shutDown() *gate.Rejection {
	return c.shed(c.reject(context.Background(), &settings{}, &waitq.Request{Class: index(gate.Default)}, waitq.Result{Outcome: waitq.Closed}))
}

// exemptFull is the error of an exempt request beyond MaxExempt. They have no queue.
func (c *Controller) exemptFull(ctx context.Context, s *settings, res waitq.Result) *gate.Rejection {
	if res.Outcome == waitq.TimedOut {
		res.Outcome = waitq.Full
	}
	r := c.reject(ctx, &settings{}, &waitq.Request{Class: index(gate.Default)}, res)
	if r.Reason == gate.QueueFull {
		r.Limit, r.Unit, r.Advice = int64(s.MaxExempt), "exempt requests", "raise MaxExempt, or call exempt paths less often"
	}
	return c.shed(r)
}

// noGrowth is the error of a lease that found no room to grow.
func (c *Controller) noGrowth(s *settings, ln *lane, n int64) *gate.Rejection {
	r := &gate.Rejection{
		Reason: gate.QueueFull, Gate: name, Limit: c.limit.Load(), Unit: unit,
		RetryAfter: c.retryAfter(index(gate.Default), min(n, s.most)),
		Advice:     "no room for the request to grow: name its whole cost when it is admitted, or send less to this back end",
	}
	if ln != nil {
		r.Lane = c.id(ln.key)
	}
	return c.shed(r)
}

// NoTarget is the refusal of a fan-out of which nothing was called, since [Controller.Probe]
// has said no to every target. Its caller answers with it. ctx and costs are what Probe was
// given. It is counted among the sheds and logged, as the refusals of Acquire are, and
// RetryAfter is when the cheapest target may find room.
func (c *Controller) NoTarget(ctx context.Context, costs ...int64) *gate.Rejection {
	s, class := c.set.Load(), gate.ClassOf(ctx)
	cheapest := s.most
	for _, cost := range costs {
		cheapest = min(cheapest, priced(cost))
	}
	r := &gate.Rejection{
		Reason: gate.NoTarget, Gate: name, Class: class, Limit: c.limit.Load(), Unit: unit,
		RetryAfter: c.retryAfter(index(class), cheapest),
		Advice:     "the lane has room for none of the targets: send less to this back end, or raise MaxLimit",
	}
	if s.VirtualLanes {
		if _, ln := c.parent(ctx); ln != nil {
			r.Lane = c.id(ln.key)
		} else {
			in := gate.Request{}.In(ctx)
			r.Lane = c.LaneID(tenantOf(&in))
		}
	}
	return c.shed(r)
}

// reasons are all that a controller refuses for.
var reasons = [...]gate.Reason{
	gate.CostExceedsLimit, gate.TenantQueueFull, gate.QueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced,
	gate.NoTarget, gate.ShuttingDown, gate.Canceled,
}

// sheds counts refusals by reason.
type sheds [len(reasons)]atomic.Int64

func (s *sheds) counts() shedlog.Counts { return shedlog.Counts{Reasons: reasons[:], Numbers: s[:]} }
