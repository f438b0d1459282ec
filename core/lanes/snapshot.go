package lanes

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
	"github.com/headgate-go/headgate/core/pressure"
)

// Snapshot is the state of a controller, as JSON under "lanes". In shadow mode the cost in
// flight and what waits are what the books say.
type Snapshot struct {
	// Mode is what the controller does.
	Mode gate.Mode `json:"mode"`
	// VirtualLanes says whether tenants have queues of their own: configured, and the
	// mode is not off. Probes is "off" where every probe says yes without a look, and
	// the mode otherwise.
	VirtualLanes bool      `json:"virtual_lanes"`
	Probes       string    `json:"probes"`
	Algorithm    Algorithm `json:"algorithm"`

	// Limit is the cost that may be in flight now. The other three are as configured.
	Limit        int64 `json:"limit"`
	MinLimit     int   `json:"min_limit"`
	InitialLimit int   `json:"initial_limit"`
	MaxLimit     int   `json:"max_limit"`
	// Measuring says that the limit is in a dip; it was LimitBefore, which is 0
	// otherwise.
	Measuring   bool  `json:"measuring"`
	LimitBefore int64 `json:"limit_before"`

	// What is in flight, as leases and as their cost together; leases of exempt paths,
	// which are in neither; what waits, as requests, as their cost together, and for how
	// long the first of them has.
	Inflight       int64 `json:"inflight"`
	InflightCost   int64 `json:"inflight_cost"`
	ExemptInflight int64 `json:"exempt_inflight"`
	QueuedCount    int   `json:"queued_count"`
	QueuedCost     int64 `json:"queued_cost"`
	OldestWaitS    secs  `json:"oldest_wait_s"`

	// What moves the limit, as the last window that closed left it. Latencies are 0
	// where none is known, and their source is "first_byte" or "hold".
	Utilization      float64           `json:"utilization"`
	PressureSeverity pressure.Severity `json:"pressure_severity"`
	ShortLatencyS    secs              `json:"short_latency_s"`
	LongLatencyS     secs              `json:"long_latency_s"`
	LatencySource    string            `json:"latency_source"`
	Gradient         float64           `json:"gradient"`

	// The lanes, where VirtualLanes is on. LaneTenants has those in which something is
	// in flight, waits, or was skipped, by id.
	LaneCount       int            `json:"lane_count"`
	LaneQueuedCount int            `json:"lane_queued_count"`
	LaneQueuedCost  int64          `json:"lane_queued_cost"`
	LaneTenants     []LaneSnapshot `json:"lane_tenants"`
	// Requests without a tenant, and requests that shared the overflow lane.
	KeyMissing int64 `json:"key_missing_total"`
	Overflowed int64 `json:"overflow_total"`

	// Targets that probes asked for, skipped, would have skipped in shadow mode; and
	// probes that went wrong inside.
	ProbeTargets    int64 `json:"probes_total"`
	ProbeSkips      int64 `json:"probe_skips_total"`
	ProbeWouldSkips int64 `json:"probe_would_skips_total"`
	ProbeErrors     int64 `json:"probe_errors_total"`
	CostErrors      int64 `json:"cost_errors_total"`

	// Requests since New: those that got a lease, those that had to wait, those refused,
	// also by reason; and, in shadow mode, what Enforce would have done.
	Admitted    int64                 `json:"admitted_total"`
	Queued      int64                 `json:"queued_total"`
	Sheds       int64                 `json:"shed_total"`
	ShedReasons map[gate.Reason]int64 `json:"sheds_by_reason"`
	Canceled    int64                 `json:"canceled_total"` // callers that left; not sheds
	WouldAdmit  int64                 `json:"would_admit_total"`
	WouldQueue  int64                 `json:"would_queue_total"`
	WouldRefuse int64                 `json:"would_refuse_total"`
}

// LaneSnapshot is the state of one tenant's lane.
type LaneSnapshot struct {
	Lane        string `json:"lane"` // an opaque id; see [Controller.LaneID]
	Inflight    int64  `json:"inflight"`
	QueuedCount int    `json:"queued_count"`
	QueuedCost  int64  `json:"queued_cost"`
	ProbeSkips  int64  `json:"probe_skips"`
}

type secs float64

// inSecs is d in seconds, to the millisecond.
func inSecs(d time.Duration) secs { return secs(math.Round(d.Seconds()*1000) / 1000) }

// Snapshot reads the controller's state. It reads memory only, and holds the queue's lock
// for a step for each tenant that waits.
func (c *Controller) Snapshot() Snapshot {
	s, q := c.set.Load(), c.q.Snapshot()
	out := Snapshot{
		Mode: s.Mode, VirtualLanes: s.VirtualLanes && s.Mode != gate.Off, Algorithm: s.Algorithm, Probes: gate.Off.String(),
		Limit: q.Limit, MinLimit: s.MinLimit, InitialLimit: s.InitialLimit, MaxLimit: s.MaxLimit,
		Inflight: q.Leases, InflightCost: q.InUse, ExemptInflight: c.exempt.Snapshot().Leases,
		QueuedCost: q.Queued, OldestWaitS: inSecs(q.OldestWait),
		ProbeTargets: c.probes.asked.Load(), ProbeSkips: c.probes.skipped.Load(),
		ProbeWouldSkips: c.probes.would.Load(), ProbeErrors: c.probes.errors.Load(),
		CostErrors: c.costErrors.Load(), KeyMissing: c.lanes.anonymous.Load(), Overflowed: c.lanes.spilled.Load(), LaneTenants: []LaneSnapshot{},
		WouldAdmit: c.would.admit.Load(), WouldQueue: c.would.queue.Load(), WouldRefuse: c.would.refuse.Load(),
	}
	out.Admitted = c.records.taken() - q.Returned
	for i := range waitq.Classes {
		out.Admitted += q.Immediate[i] + q.Outcomes[i][waitq.Granted]
		out.Queued += q.Entered[i]
		out.QueuedCount += q.Waiting[i]
	}
	out.ShedReasons, out.Sheds, out.Canceled = c.sheds.counts().Read()
	if out.VirtualLanes {
		out.Probes = s.Mode.String()
		c.addLanes(&out)
	}
	c.addLaw(&out)
	return out
}

// addLaw adds what moves the limit.
func (c *Controller) addLaw(out *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, t := c.law, &c.law.trend
	out.Utilization, out.PressureSeverity = c.last.utilisation, c.last.severity
	out.ShortLatencyS, out.LongLatencyS = secs(t.short), secs(t.long)
	if t.long > 0 {
		out.LatencySource, out.Gradient = t.from.String(), t.gradient()
	}
	if out.Measuring = l.dipping; l.dipping {
		out.LimitBefore = l.back
	}
}

// addLanes adds the lanes.
func (c *Controller) addLanes(out *Snapshot) {
	waiting, ready, all := c.q.Flows(), c.records.byLane(), c.lanes.all()
	out.LaneCount = len(all)
	for _, ln := range all {
		w := waiting[ln.key]
		l := LaneSnapshot{
			QueuedCount: w.Waiting, QueuedCost: w.Queued, ProbeSkips: ln.skips.Load(),
			Inflight: max(ln.refs.Load()-int64(w.Waiting), 0) + ready[ln],
		}
		out.LaneQueuedCount += w.Waiting
		out.LaneQueuedCost += w.Queued
		if l != (LaneSnapshot{}) {
			l.Lane = c.id(ln.key)
			out.LaneTenants = append(out.LaneTenants, l)
		}
	}
	slices.SortFunc(out.LaneTenants, func(a, b LaneSnapshot) int { return strings.Compare(a.Lane, b.Lane) })
}
