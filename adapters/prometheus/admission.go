package promgate

import (
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// What byte admission refuses for.
var admissionReasons = [...]gate.Reason{
	gate.PayloadTooLarge, gate.BodyExceedsBudget, gate.AdmissionBusy, gate.QueueTimeout, gate.Deadline,
	gate.Displaced, gate.ResourcePressure, gate.ShuttingDown, gate.SlowBody,
}

type admissionMetrics struct {
	budget   *admission.Budget
	admitted rising

	info, inflightBytes, maxInflightBytes, maxBodyBytes                    metric
	inflight, maxHeavy, exempt, decoded                                    metric
	depth, waitingBytes, queuedBytes, oldestWait, oldestHeavy, typicalHold metric
	admittedTotal, queued, sheds, canceled, shadow                         metric
}

func newAdmission(b *admission.Budget, n names) *admissionMetrics {
	return &admissionMetrics{
		budget:           b,
		info:             n.gauge("info", "How request bodies are admitted and where the budget comes from. Always 1.", "mode", "budget_source"),
		inflightBytes:    n.gauge("inflight_bytes", "Bytes of request bodies that are charged to the budget."),
		maxInflightBytes: n.gauge("max_inflight_bytes", "The budget for bytes of request bodies."),
		maxBodyBytes:     n.gauge("max_body_bytes", "The effective cap for one body."),
		inflight:         n.gauge("inflight", "Requests that hold bytes.", "weight"),
		maxHeavy:         n.gauge("max_heavy_inflight", "How many heavy requests may hold bytes, headroom included. Absent where their number is not capped."),
		exempt:           n.gauge("exempt_inflight", "Exempt requests in flight."),
		decoded:          n.gauge("decoded_bytes", "Bytes in the account of decoded bodies."),
		depth:            n.gauge("queue_depth", "Requests that wait for bytes.", "weight"),
		waitingBytes:     n.gauge("waiting_bytes", "Bytes that waiting requests ask for."),
		queuedBytes:      n.gauge("queued_bytes", "Bytes that waiting requests hold in memory already."),
		oldestWait:       n.gauge("oldest_wait_seconds", "How long the one that waits longest has waited, 0 if nobody waits."),
		oldestHeavy:      n.gauge("oldest_heavy_seconds", "How long the oldest heavy request has held its bytes, 0 if there is none."),
		typicalHold:      n.gauge("typical_hold_seconds", "Median of how long bytes are held. Absent while it is unknown.", "weight"),
		admittedTotal:    n.counter("admitted_total", "Requests that were admitted, at once or after a wait."),
		queued:           n.counter("queued_total", "Requests that had to wait."),
		sheds:            n.counter("sheds_total", "Requests that were refused, by reason.", "reason"),
		canceled:         n.counter("canceled_total", "Requests whose client left before they were admitted. They are no sheds."),
		shadow:           n.counter("shadow_total", "In shadow mode: requests by what would have become of them.", "outcome"),
	}
}

func (a *admissionMetrics) read(p *page) {
	s := a.budget.Snapshot()
	p.count(a.info, 1, s.Mode.String(), s.BudgetSource)
	p.count(a.inflightBytes, s.InflightBytes)
	p.count(a.maxInflightBytes, s.MaxInflightBytes)
	p.count(a.maxBodyBytes, s.MaxBodyBytes)
	p.count(a.inflight, max(0, s.Inflight-s.HeavyInflight), "light")
	p.count(a.inflight, s.HeavyInflight, "heavy")
	if s.CountCapEnabled {
		p.count(a.maxHeavy, s.CountCap)
	}
	p.count(a.exempt, s.ExemptInflight)
	p.count(a.decoded, s.DecodedBytes)
	p.count(a.depth, int64(max(0, s.Waiting-s.WaitingHeavy)), "light")
	p.count(a.depth, int64(s.WaitingHeavy), "heavy")
	p.count(a.waitingBytes, s.WaitingBytes)
	p.count(a.queuedBytes, s.QueuedBytes)
	p.add(a.oldestWait, float64(s.OldestWaitS))
	p.add(a.oldestHeavy, float64(s.OldestHeavyS))
	p.known(a.typicalHold, float64(s.TypicalHoldS), "light")
	p.known(a.typicalHold, float64(s.TypicalHoldHeavy), "heavy")
	p.count(a.admittedTotal, a.admitted.at(s.Admitted))
	p.count(a.queued, s.Queued)
	p.sheds(a.sheds, s.ShedReasons, admissionReasons[:])
	p.count(a.canceled, s.Canceled)
	p.shadow(a.shadow, s.WouldAdmit, s.WouldQueue, s.WouldRefuse)
}
