package promgate

import (
	"strconv"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
)

// What the tenants' gate refuses for.
var lanesReasons = [...]gate.Reason{
	gate.CostExceedsLimit, gate.TenantQueueFull, gate.QueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced,
	gate.NoTarget, gate.ShuttingDown,
}

type lanesMetrics struct {
	controller     *lanes.Controller
	admitted, said rising

	info, limit, minLimit, maxLimit, measuring                    metric
	inflight, inflightCost, exempt, depth, queuedCost, oldestWait metric
	tenantLanes, utilization, gradient, latency                   metric
	admittedTotal, queued, sheds, canceled, shadow                metric
	probes, overflow, keyMissing, costErrors                      metric
}

func newLanes(c *lanes.Controller, n names) *lanesMetrics {
	return &lanesMetrics{
		controller:    c,
		info:          n.gauge("info", "How tenants' requests are admitted. Always 1.", "mode", "algorithm", "virtual_lanes"),
		limit:         n.gauge("limit", "The limit of the cost in flight."),
		minLimit:      n.gauge("min_limit", "The least that the limit can be."),
		maxLimit:      n.gauge("max_limit", "The most that the limit can be."),
		measuring:     n.gauge("measuring", "1 while the limit is lowered to measure the usual latency anew, else 0."),
		inflight:      n.gauge("inflight", "Requests in flight."),
		inflightCost:  n.gauge("inflight_cost", "The cost of the requests in flight."),
		exempt:        n.gauge("exempt_inflight", "Exempt requests in flight."),
		depth:         n.gauge("queue_depth", "Requests that wait."),
		queuedCost:    n.gauge("queued_cost", "The cost of the requests that wait."),
		oldestWait:    n.gauge("oldest_wait_seconds", "How long the one that waits longest has waited, 0 if nobody waits."),
		tenantLanes:   n.gauge("tenant_lanes", "Lanes of tenants in the table. 0 without virtual lanes."),
		utilization:   n.gauge("utilization_ratio", "The part of the limit that was in use in the last window."),
		gradient:      n.gauge("gradient", "By what part the latency is above the usual one; 0 while that is unknown."),
		latency:       n.gauge("latency_seconds", "Averages of the back end's latency. Absent while they are unknown.", "window"),
		admittedTotal: n.counter("admitted_total", "Requests that were admitted, at once or after a wait."),
		queued:        n.counter("queued_total", "Requests that had to wait."),
		sheds:         n.counter("sheds_total", "Requests that were refused, by reason.", "reason"),
		canceled:      n.counter("canceled_total", "Requests whose client left before they were admitted. They are no sheds."),
		shadow:        n.counter("shadow_total", "In shadow mode: requests by what would have become of them.", "outcome"),
		probes:        n.counter("probes_total", "Targets of fan-outs by what the probe said. error counts fan-outs whose probe went wrong and said yes.", "outcome"),
		overflow:      n.counter("overflow_total", "Requests that shared the overflow lane."),
		keyMissing:    n.counter("key_missing_total", "Requests without a tenant."),
		costErrors:    n.counter("cost_errors_total", "Requests whose price could not be found, so that they had the default one."),
	}
}

func (l *lanesMetrics) read(p *page) {
	s := l.controller.Snapshot()
	p.count(l.info, 1, s.Mode.String(), s.Algorithm.String(), strconv.FormatBool(s.VirtualLanes))
	p.count(l.limit, s.Limit)
	p.count(l.minLimit, int64(s.MinLimit))
	p.count(l.maxLimit, int64(s.MaxLimit))
	p.flag(l.measuring, s.Measuring)
	p.count(l.inflight, s.Inflight)
	p.count(l.inflightCost, s.InflightCost)
	p.count(l.exempt, s.ExemptInflight)
	p.count(l.depth, int64(s.QueuedCount))
	p.count(l.queuedCost, s.QueuedCost)
	p.add(l.oldestWait, float64(s.OldestWaitS))
	p.count(l.tenantLanes, int64(s.LaneCount))
	p.add(l.utilization, s.Utilization)
	p.add(l.gradient, s.Gradient)
	p.known(l.latency, float64(s.ShortLatencyS), "short")
	p.known(l.latency, float64(s.LongLatencyS), "long")
	p.count(l.admittedTotal, l.admitted.at(s.Admitted))
	p.count(l.queued, s.Queued)
	p.sheds(l.sheds, s.ShedReasons, lanesReasons[:])
	p.count(l.canceled, s.Canceled)
	p.shadow(l.shadow, s.WouldAdmit, s.WouldQueue, s.WouldRefuse)
	// A probe counts what it was asked before what it has skipped.
	p.count(l.probes, l.said.at(s.ProbeTargets-s.ProbeSkips-s.ProbeWouldSkips), "admit")
	p.count(l.probes, s.ProbeSkips, "skip")
	p.count(l.probes, s.ProbeWouldSkips, "would_skip")
	p.count(l.probes, s.ProbeErrors, "error")
	p.count(l.overflow, s.Overflowed)
	p.count(l.keyMissing, s.KeyMissing)
	p.count(l.costErrors, s.CostErrors)
}
