package monitor

import (
	"math"
	"sync/atomic"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/pressure"
)

// The gates that refuse, as places in a sample.
const (
	byAdmission = iota
	byLanes
	byInflight
	refusers
)

// reasons are what a sample counts refusals by; the last stands for those that it does
// not know.
var reasons = [...]gate.Reason{
	gate.PayloadTooLarge, gate.BodyExceedsBudget, gate.CostExceedsLimit, gate.AdmissionBusy, gate.QueueFull, gate.TenantQueueFull,
	gate.QueueTimeout, gate.Deadline, gate.Displaced, gate.NoTarget, gate.ResourcePressure, gate.ShuttingDown, gate.SlowBody,
	gate.MaxHold, gate.SlotLost, "other",
}

// sample is the state of all gates at one time. It is never changed. What a gate that
// there is not would say is 0.
type sample struct {
	at       time.Duration // since the recorder began
	severity pressure.Severity

	bytes, budget, waitingBytes int64
	limit, cost, queuedCost     int64
	calls, queued               int32 // outbound, all lanes

	// Since the sample before.
	sheds [refusers][len(reasons)]uint32
	would [refusers]uint32 // what shadow mode would have refused

	lanes [tracked]cell
}

// counts are the counters of one gate since it was made.
type counts struct {
	sheds [len(reasons)]int64
	would int64
}

// countsOf reads a snapshot's counters.
func countsOf(sheds map[gate.Reason]int64, would int64) counts {
	c := counts{would: would}
	for reason, n := range sheds {
		c.sheds[placeOf(reason)] += n
	}
	return c
}

func placeOf(reason gate.Reason) int {
	for i, r := range reasons[:len(reasons)-1] {
		if r == reason {
			return i
		}
	}
	return len(reasons) - 1
}

// grown is by how much a counter has grown since it was before. One that went back has
// begun again.
func grown(before, now int64) uint32 {
	if now >= before {
		now -= before
	}
	return uint32(min(max(now, 0), math.MaxUint32))
}

// set has place by of a sample say what has been counted since before.
func (s *sample) set(by int, before, now counts) {
	for i := range reasons {
		s.sheds[by][i] = grown(before.sheds[i], now.sheds[i])
	}
	s.would[by] = grown(before.would, now.would)
}

// view is all that a reader of the history needs. It is never changed.
type view struct {
	samples []*sample // oldest first
	names   [tracked]name
}

// recorder takes the samples.
type recorder struct {
	gates *headgate.Headgate
	most  int // samples that are kept
	epoch time.Time
	view  atomic.Pointer[view]

	// From here on all is the sampler's.
	begun    bool // there was a sample
	before   [refusers]counts
	tracking tracking
}

// init makes the recorder and takes the first sample.
func (r *recorder) init(gates *headgate.Headgate, c Config) {
	r.gates, r.epoch = gates, time.Now()
	r.most = int(c.History / c.Period)
	r.record()
}

// run takes samples until the handler is closed.
func (h *Handler) run() {
	defer close(h.stopped)
	tick := time.NewTicker(h.config.Period)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
			h.recorder.record()
		}
	}
}

// record takes one sample and publishes it.
func (r *recorder) record() {
	s := &sample{at: time.Since(r.epoch)}
	if m := r.gates.Memory; m != nil {
		s.severity = m.Severity()
	}
	if b := r.gates.Bytes; b != nil {
		x := b.Snapshot()
		s.bytes, s.budget, s.waitingBytes = x.InflightBytes, x.MaxInflightBytes, x.WaitingBytes
		r.count(s, byAdmission, countsOf(x.ShedReasons, x.WouldRefuse))
	}
	if t := r.gates.Tenants; t != nil {
		x := t.Snapshot()
		s.limit, s.cost, s.queuedCost = x.Limit, x.InflightCost, x.QueuedCost
		r.count(s, byLanes, countsOf(x.ShedReasons, x.WouldRefuse))
	}
	if o := r.gates.Outbound; o != nil {
		x := o.Snapshot()
		r.recordLanes(s, x.Lanes)
		// The lanes' own counters go with the lanes.
		r.count(s, byInflight, countsOf(x.Total.ShedReasons, x.Total.WouldRefuse))
	}
	r.begun = true
	r.publish(s)
}

// count adds what a gate has refused since the last sample.
func (r *recorder) count(s *sample, by int, now counts) {
	if r.begun {
		s.set(by, r.before[by], now)
	}
	r.before[by] = now
}

// recordLanes adds the outbound calls that there are.
func (r *recorder) recordLanes(s *sample, lanes []inflight.LaneSnapshot) {
	for i := range lanes {
		s.calls += int32(lanes[i].Inflight)
		s.queued += int32(lanes[i].Queued)
	}
	s.lanes = r.tracking.update(lanes)
}

func (r *recorder) publish(s *sample) {
	var samples []*sample
	if old := r.view.Load(); old != nil {
		samples = old.samples[max(0, len(old.samples)+1-r.most):]
	}
	// A new slice each time: readers may still go through the old one, and the array behind
	// it would keep samples that are gone.
	next := make([]*sample, 0, len(samples)+1)
	next = append(append(next, samples...), s)
	r.view.Store(&view{samples: next, names: r.tracking.names})
}
