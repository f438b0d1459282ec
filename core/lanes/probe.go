package lanes

import (
	"context"

	"github.com/headgate-go/headgate/core/gate"
)

// Probe says for each of a fan-out's targets whether the parent's lane would take it
// now. The parent is the request that ctx belongs to. It never waits and holds nothing,
// and it is no reservation: the lane may be full again when the target is dispatched.
//
// All targets of one fan-out are asked for together, the most wanted first: they share
// what the parent's own lease holds and the room that is free while nobody waits. A
// target that does not fit is passed over, and a smaller one behind it may fit still. A
// cost is a target's own, by [Price] of its real body and stream flag; one below 1 counts
// as that of a small call.
//
// Every answer is yes without VirtualLanes, where the parent's lease covers its targets,
// in mode off, and where something goes wrong inside, which is counted. In shadow mode
// too; what enforce would have skipped is counted.
func (c *Controller) Probe(ctx context.Context, costs ...int64) []bool {
	yes := make([]bool, len(costs))
	for i := range yes {
		yes[i] = true
	}
	if s := c.set.Load(); s.VirtualLanes && s.Mode != gate.Off && len(costs) > 0 {
		c.probe(ctx, s, costs, yes)
	}
	return yes
}

// probe answers into yes, in which every answer is yes.
func (c *Controller) probe(ctx context.Context, s *settings, costs []int64, yes []bool) {
	defer func() {
		if recover() == nil {
			return
		}
		for i := range yes {
			yes[i] = true
		}
		c.probes.errors.Add(1)
	}()
	own, ln := c.parent(ctx)
	limit := c.limit.Load()
	room := min(own+c.q.Spare(), max(own, limit)) // of a limit that it may have whole, what is free is a part
	skipped := int64(0)
	for i, cost := range costs {
		cost = priced(cost)
		charge := min(cost, limit)
		if cost <= s.most && charge <= room {
			room -= charge
			continue
		}
		skipped++
		yes[i] = s.Mode == gate.Shadow
	}
	c.probes.asked.Add(int64(len(costs)))
	switch {
	case skipped == 0:
	case s.Mode == gate.Shadow:
		c.probes.would.Add(skipped)
	default:
		c.probes.skipped.Add(skipped)
		if ln != nil {
			ln.skips.Add(skipped)
		}
	}
}

// smallCall is the price of a small call that is no stream.
const smallCall = 6

// priced is what a target's cost counts as.
func priced(cost int64) int64 {
	if cost < 1 {
		return smallCall
	}
	return cost
}

// parent is what the parent's lease holds, and its lane, nil where there is none.
func (c *Controller) parent(ctx context.Context) (int64, *lane) {
	if parent, ok := gate.LeaseOf(ctx, c); ok {
		if h, gen := parent.Holder(); h != nil {
			if l, own := h.(*lease); own && !l.aside {
				if holds, ln, ok := l.holds(gen); ok {
					return holds, ln
				}
			}
		}
	}
	r := gate.Request{}.In(ctx)
	return 0, c.lanes.peek(kept(tenantOf(&r)))
}
