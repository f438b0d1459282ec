package admission

import (
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/shedlog"
	"github.com/headgate-go/headgate/core/internal/waitq"
	"github.com/headgate-go/headgate/core/pressure"
)

// sheds counts refusals by reason.
type sheds [len(reasons)]atomic.Int64

// reasons are all that byte admission refuses for.
var reasons = [...]gate.Reason{
	gate.PayloadTooLarge, gate.BodyExceedsBudget, gate.AdmissionBusy, gate.QueueTimeout, gate.Deadline,
	gate.Displaced, gate.ResourcePressure, gate.ShuttingDown, gate.SlowBody, gate.Canceled,
}

func (s *sheds) counts() shedlog.Counts { return shedlog.Counts{Reasons: reasons[:], Numbers: s[:]} }

// registry knows since when heavy leases are out. It has a place for so many and
// leaves out those beyond, so that it needs no lock.
type registry struct {
	hint  atomic.Uint32
	since [256]atomic.Int64 // 0 = free
}

// add returns the place of a lease granted at now, -1 if there was none.
func (r *registry) add(now int64) int {
	at := r.hint.Add(1)
	for i := range uint32(8) {
		if s := int((at + i) % uint32(len(r.since))); r.since[s].CompareAndSwap(0, now) {
			return s
		}
	}
	return -1
}

func (r *registry) remove(slot int) {
	if slot >= 0 {
		r.since[slot].Store(0)
	}
}

// oldest is since when the oldest lease is out, 0 if there is none.
func (r *registry) oldest() int64 {
	var oldest int64
	for i := range r.since {
		if t := r.since[i].Load(); t != 0 && (oldest == 0 || t < oldest) {
			oldest = t
		}
	}
	return oldest
}

// Snapshot is the state of a budget, as JSON under "admission".
type Snapshot struct {
	// Mode is what the budget does. InflightBytes is what its leases hold together,
	// MaxInflightBytes the budget; after the budget has shrunk the first may be over it.
	Mode             gate.Mode `json:"mode"`
	InflightBytes    int64     `json:"inflight_bytes"`
	MaxInflightBytes int64     `json:"max_inflight_bytes"`
	// BudgetSource is gomemlimit, cgroup, physical or override, and "unknown"
	// where no ceiling could be read: the budget is then the least.
	BudgetSource string `json:"budget_source"`
	// PressureSeverity is how close to its memory limit the process is, as far as the
	// budget goes by it.
	PressureSeverity pressure.Severity `json:"pressure_severity"`
	// CeilingBytes is the memory ceiling, 0 = unknown; CeilingNote says why
	// something could not be read.
	CeilingBytes int64  `json:"ceiling_bytes"`
	CeilingNote  string `json:"ceiling_note,omitempty"`
	// MaxBodyBytes is the effective cap for one body.
	MaxBodyBytes int64 `json:"max_body_bytes"`

	// Inflight are the leases that are out, HeavyInflight the heavy ones among them;
	// ExemptInflight are those of exempt paths, which are in neither. CountCapEnabled is
	// whether the number of heavy ones has a cap, CountCap.
	Inflight         int64 `json:"inflight"`
	HeavyInflight    int64 `json:"heavy_inflight"`
	ExemptInflight   int64 `json:"exempt_inflight"`
	CountCapEnabled  bool  `json:"count_cap_enabled"`
	CountCap         int64 `json:"count_cap"` // headroom included; 0 when off
	DecodedBytes     int64 `json:"decoded_bytes"`
	HeapLiveBytes    int64 `json:"heap_live_bytes"`
	Waiting          int   `json:"waiting"`
	WaitingHeavy     int   `json:"waiting_heavy"`
	WaitingBytes     int64 `json:"waiting_bytes"` // what waiters ask for
	QueuedBytes      int64 `json:"queued_bytes"`  // what waiters hold in memory
	OldestWaitS      secs  `json:"oldest_wait_s"`
	OldestHeavyS     secs  `json:"oldest_heavy_s"` // of the first 256 heavy leases
	TypicalHoldS     secs  `json:"typical_hold_s"` // median, light bodies
	TypicalHoldHeavy secs  `json:"typical_hold_heavy_s"`

	// Admitted, Queued and Sheds count requests since New: those that got a lease, those
	// that had to wait, whatever came of it, and those refused, by reason in ShedReasons.
	Admitted    int64                 `json:"admitted_total"`
	Queued      int64                 `json:"queued_total"`
	Sheds       int64                 `json:"shed_total"`
	ShedReasons map[gate.Reason]int64 `json:"sheds_by_reason"`
	Canceled    int64                 `json:"canceled_total"` // callers that left; not sheds

	// In shadow mode, what Enforce would have done.
	WouldAdmit  int64 `json:"would_admit_total"`
	WouldQueue  int64 `json:"would_queue_total"`
	WouldRefuse int64 `json:"would_refuse_total"`
}

type secs float64

func inSecs(d time.Duration) secs { return secs(d.Seconds()) }

// Snapshot reads the budget's state. It reads memory only and blocks nobody for
// longer than some dozen loads.
func (b *Budget) Snapshot() Snapshot {
	s, q := b.set.Load(), b.q.Snapshot()
	out := Snapshot{
		Mode: s.Mode, InflightBytes: q.InUse, MaxInflightBytes: q.Limit, BudgetSource: string(s.source), PressureSeverity: s.severity,
		CeilingBytes: s.ceiling.Bytes, CeilingNote: s.ceiling.Reason, MaxBodyBytes: s.most(1),
		Inflight: q.Leases, HeavyInflight: q.ClassLeases[heavy], ExemptInflight: b.exempt.Snapshot().Leases,
		DecodedBytes: b.decoded.InUse(), HeapLiveBytes: int64(b.heap.Load()),
		Waiting: q.Waiting[light] + q.Waiting[heavy], WaitingHeavy: q.Waiting[heavy],
		WaitingBytes: q.Queued, QueuedBytes: q.Held, OldestWaitS: inSecs(q.OldestWait),
		TypicalHoldS: inSecs(q.TypicalHold[light]), TypicalHoldHeavy: inSecs(q.TypicalHold[heavy]),
	}
	if out.BudgetSource == "" {
		out.BudgetSource = "unknown"
	}
	if s.heavies != waitq.Unlimited {
		out.CountCapEnabled, out.CountCap = true, s.heavies
	}
	if t := b.heavies.oldest(); t != 0 {
		out.OldestHeavyS = inSecs(time.Duration(b.now() - t))
	}
	for c := range waitq.Classes {
		out.Admitted += q.Immediate[c] + q.Outcomes[c][waitq.Granted]
		out.Queued += q.Entered[c]
	}
	out.Admitted += b.leases.taken() - q.Returned
	out.ShedReasons, out.Sheds, out.Canceled = b.sheds.counts().Read()
	out.WouldAdmit, out.WouldQueue, out.WouldRefuse = b.shadow.admit.Load(), b.shadow.queue.Load(), b.shadow.refuse.Load()
	return out
}

// now is the budget's clock, in nanoseconds; never 0.
func (b *Budget) now() int64 { return int64(time.Since(b.epoch)) + 1 }

// liveHeap is what the last collection left alive.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
