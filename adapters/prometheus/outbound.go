package promgate

import (
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/prometheus/client_golang/prometheus"
)

// What the limiter of outbound calls refuses for.
var outboundReasons = [...]gate.Reason{gate.QueueFull, gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.ShuttingDown}

var verdicts = [...]inflight.Verdict{inflight.Idle, inflight.Busy, inflight.LocalQueue, inflight.UpstreamDegraded, inflight.Both}

// The priorities in the order of inflight's histograms.
var priorities = [...]gate.Class{gate.Interactive, gate.Default, gate.Bulk}

type outboundMetrics struct {
	limiter *inflight.Limiter
	table   table

	info, enabled, limit, reserve, inflight, depth, oldestWait, paused, saturated, verdict metric
	waits, holds                                                                           *prometheus.Desc
	timeouts, granted, retries, canceled, repeats, sheds, shadow                           metric
}

func newOutbound(l *inflight.Limiter, n names) *outboundMetrics {
	const lane = "lane"
	return &outboundMetrics{
		limiter:    l,
		table:      newTable(),
		info:       n.gauge("info", "How outbound calls are limited. Always 1.", "mode"),
		enabled:    n.gauge("enabled", "1 if a limit is set and the mode is not off, else 0."),
		limit:      n.gauge("limit", "Slots of a lane, 0 = no limit. Of lane \"other\" the sum.", lane),
		reserve:    n.gauge("reserve", "Slots of a lane that only interactive calls may take. Of lane \"other\" the sum.", lane),
		inflight:   n.gauge("inflight", "Calls that hold a slot.", lane),
		depth:      n.gauge("queue_depth", "Calls that wait for a slot.", lane, "priority"),
		oldestWait: n.gauge("oldest_wait_seconds", "How long the one that waits longest has waited, 0 if nobody waits.", lane),
		paused:     n.gauge("paused_seconds", "For how long a lane will grant nothing, as its back end has asked; 0 if it is not paused. Of lane \"other\" the longest.", lane),
		saturated:  n.gauge("saturated", "1 if somebody has been waiting for 60 s without a break, else 0. Of lane \"other\": in any of its lanes.", lane),
		verdict:    n.gauge("verdict", "1 for what goes on in a lane, 0 for the other verdicts. Of lane \"other\": 1 for what goes on in any of its lanes.", lane, "verdict"),
		waits: n.histogram("queue_wait_seconds",
			"How long calls have waited that were granted a slot (0 if at once) or timed out.", lane, "priority"),
		holds: n.histogram("hold_seconds",
			"How long slots were held. Of calls that did not wait one in 64 is measured and stands for the others.", lane),
		timeouts: n.counter("queue_timeouts_total", "Calls that have waited as long as their lane allows.", lane),
		granted:  n.counter("granted_total", "Calls that got a slot, at once or after a wait.", lane),
		retries:  n.counter("retries_total", "Requests after the first of a call, or that say so.", lane),
		canceled: n.counter("canceled_total", "Calls whose caller left before they got a slot. They are no sheds.", lane),
		repeats:  n.counter("repeat_sheds_total", "Retries that were refused at once since their call had been; not in the sheds.", lane),
		sheds:    n.counter("sheds_total", "Calls that were refused, by reason, in all lanes.", "reason"),
		shadow:   n.counter("shadow_total", "In shadow mode: calls by what would have become of them, in all lanes.", "outcome"),
	}
}

func (o *outboundMetrics) read(p *page) {
	s := o.limiter.Snapshot()
	p.count(o.info, 1, s.Mode.String())
	p.flag(o.enabled, s.Enabled)
	for _, r := range o.table.rows(&s) {
		o.row(p, r)
	}
	p.sheds(o.sheds, s.Total.ShedReasons, outboundReasons[:])
	p.shadow(o.shadow, s.Total.WouldAdmit, s.Total.WouldQueue, s.Total.WouldRefuse)
}

func (o *outboundMetrics) row(p *page, r *row) {
	lane := text(r.lane)
	p.count(o.limit, r.limit, lane)
	p.count(o.reserve, r.reserve, lane)
	p.count(o.inflight, r.inflight, lane)
	p.add(o.oldestWait, r.oldestWait, lane)
	p.add(o.paused, r.paused, lane)
	p.flag(o.saturated, r.saturated, lane)
	for _, v := range verdicts {
		p.flag(o.verdict, r.verdicts[v], lane, string(v))
	}
	for i, c := range priorities {
		p.count(o.depth, r.queued[i], lane, c.String())
		p.histogram(o.waits, r.waits[i], lane, c.String())
	}
	p.histogram(o.holds, r.holds, lane)
	p.count(o.timeouts, r.timeouts, lane)
	p.count(o.granted, r.granted, lane)
	p.count(o.retries, r.retries, lane)
	p.count(o.canceled, r.canceled, lane)
	p.count(o.repeats, r.repeats, lane)
}
