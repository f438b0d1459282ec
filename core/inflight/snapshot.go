package inflight

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// Snapshot is the state of a limiter, as JSON under "inflight". Where no lane has a
// limit, the JSON is just {"enabled": false}.
type Snapshot struct {
	Enabled     bool           `json:"enabled"` // a limit is set, and the mode is not off
	GeneratedAt time.Time      `json:"generated_at"`
	Mode        gate.Mode      `json:"mode"`
	Lanes       []LaneSnapshot `json:"lanes"` // by key

	// Total sums up the counters and histograms of all lanes that there have been since
	// New. A lane that has made way for another one is in it still, but for who was
	// refused in the moment in which it did. All else in it is zero. Not in the JSON.
	Total LaneSnapshot `json:"-"`
}

// MarshalJSON returns the whole snapshot, or that the limiter is off.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	if !s.Enabled {
		return []byte(`{"enabled":false}`), nil
	}
	type plain Snapshot
	return json.Marshal(plain(s))
}

// ByClass is a number for each class: Interactive, Default and Bulk.
type ByClass struct {
	Interactive int64 `json:"interactive"`
	Default     int64 `json:"default"`
	Bulk        int64 `json:"bulk"`
}

// LaneSnapshot is the state of one lane. Times are in seconds. The percentiles are
// those of the waits of the last 5 minutes, of all who got a slot, those who got it
// at once, who left without one, and who wait still by what they have waited. In shadow
// mode all of it is what the books say: a call that they refuse is nowhere in it.
type LaneSnapshot struct {
	Lane               string  `json:"lane"`    // its key
	Limit              int     `json:"limit"`   // 0 = off
	Reserve            int     `json:"reserve"` // as it is, one slot at least is everybody's
	Inflight           int     `json:"inflight"`
	InflightByPriority ByClass `json:"inflight_by_priority"`
	Queued             int     `json:"queued"`
	QueuedByPriority   ByClass `json:"queued_by_priority"`
	OldestWaitS        secs    `json:"oldest_wait_s"`
	WaitP50S           secs    `json:"wait_p50_s_5m"`
	WaitP90S           secs    `json:"wait_p90_s_5m"`
	QueueTimeouts      int64   `json:"queue_timeouts_5m"`
	Saturated          bool    `json:"saturated"` // somebody has waited for 60 s without a break
	Verdict            Verdict `json:"verdict"`
	PausedS            secs    `json:"paused_s"` // how long nothing is granted yet; see Pause

	// Counters since the lane was made.
	Granted     int64                 `json:"granted_total"`
	Sheds       int64                 `json:"shed_total"`
	ShedReasons map[gate.Reason]int64 `json:"sheds_by_reason"`
	Canceled    int64                 `json:"canceled_total"`     // callers that left; not sheds
	Retries     int64                 `json:"retries_total"`      // requests after a call's first, or that say so
	RepeatSheds int64                 `json:"repeat_sheds_total"` // retries that were refused as the first was
	WouldAdmit  int64                 `json:"would_admit_total"`
	WouldQueue  int64                 `json:"would_queue_total"`
	WouldRefuse int64                 `json:"would_refuse_total"`

	// Not in the JSON. Number is the lane's among all that the limiter has made, from 1: a
	// lane that made way and is made anew has another one, and its counters start again.
	Number int64 `json:"-"`
	// Waits are those of the interactive, the default and the bulk calls: one of each
	// call that got a slot, 0 if it did not wait, or timed out.
	Waits [waitq.Classes]Histogram `json:"-"`
	// Holds is how long slots were held: of each call that waited, and of a sample of the
	// others, each of which stands for those since the one before, 64 mostly. In all they
	// stand for no more calls than have ended, and for at most 4221 fewer (63 for each of
	// 64 records and 3 classes). In shadow mode it is of calls that the books have let in.
	Holds Histogram `json:"-"`
}

// Histogram is durations by size. Nobody else writes to it.
type Histogram struct {
	Bounds []time.Duration // the upper bounds of the buckets but the last, which has none
	Counts []int64         // how many are in each bucket: above the bound before, up to its own
	Sum    time.Duration
}

// add adds what another one of the same bounds has.
func (h *Histogram) add(o Histogram) {
	if len(h.Counts) == 0 {
		h.Counts = make([]int64, len(o.Counts))
	}
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
}

// bound sets the bounds, of one that is of nothing too.
func (h *Histogram) bound(bounds []time.Duration) {
	if h.Bounds = bounds; len(h.Counts) == 0 {
		h.Counts = make([]int64, len(bounds)+1)
	}
}

type secs float64

// inSecs is d in seconds, to the millisecond.
func inSecs(d time.Duration) secs { return secs(math.Round(d.Seconds()*1000) / 1000) }

// Snapshot reads the state of every lane. It reads memory only, and holds no lane's
// lock for longer than copying a few KB takes.
func (l *Limiter) Snapshot() Snapshot {
	l.mu.Lock()
	all := l.allLocked()
	var total LaneSnapshot
	total.add(&l.ended)
	l.mu.Unlock()
	c, now := l.set.Load(), time.Now()
	s := Snapshot{GeneratedAt: now.UTC(), Mode: c.Mode, Lanes: make([]LaneSnapshot, 0, len(all))}
	s.Enabled = c.Mode != gate.Off && l.anyLimit()
	waits, holds := waitq.WaitBounds(), waitq.HoldBounds()
	for _, ln := range all {
		lane := ln.snapshot(c, now)
		lane.bound(waits[:], holds[:])
		total.add(&lane)
		s.Lanes = append(s.Lanes, lane)
	}
	total.bound(waits[:], holds[:])
	s.Total = total
	slices.SortFunc(s.Lanes, func(a, b LaneSnapshot) int { return strings.Compare(a.Lane, b.Lane) })
	return s
}

// anyLimit reports whether any lane has a limit, or would have.
func (l *Limiter) anyLimit() bool {
	c := l.set.Load()
	if c.MaxInflight > 0 {
		return true
	}
	for _, o := range c.Lanes {
		if o.MaxInflight != nil && *o.MaxInflight > 0 {
			return true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.manual {
		if n > 0 {
			return true
		}
	}
	return false
}

func (ln *lane) snapshot(c *Config, now time.Time) LaneSnapshot {
	lc, q, w := ln.set.Load(), ln.q.Snapshot(), ln.q.Waits()
	s := LaneSnapshot{
		Lane: ln.key, Limit: lc.maxInflight, Reserve: lc.effectiveReserve(),
		Inflight: int(q.InUse), InflightByPriority: byClass(held(q)),
		Queued: waiting(q), OldestWaitS: inSecs(q.OldestWait),
		WaitP50S: inSecs(w.P50), WaitP90S: inSecs(w.P90), QueueTimeouts: w.TimedOut,
		PausedS: inSecs(q.Paused),
	}
	s.count(ln, q, w.Totals)
	e := evidence{
		inflight: s.Inflight, queued: s.Queued, queuedFor: q.WaitingSince, room: ln.hasRoom(q), p90: w.P90, slow: c.SlowWait,
	}
	e.answers, e.bad = ln.answers.lastMinute(now)
	var queued [waitq.Classes]int64
	for i := range waitq.Classes {
		queued[i] = int64(q.Waiting[i])
	}
	s.QueuedByPriority = byClass(queued)
	s.Saturated, s.Verdict = e.saturated(), e.verdict()
	return s
}

// count sets the counters and, but for their bounds, the histograms.
func (s *LaneSnapshot) count(ln *lane, q waitq.Snapshot, t waitq.Totals) {
	s.Number = ln.number
	s.ShedReasons, s.Sheds, s.Canceled = ln.sheds.counts().Read()
	s.Retries, s.RepeatSheds = ln.retries.Load(), ln.repeats.Load()
	s.WouldAdmit, s.WouldQueue, s.WouldRefuse = ln.would.admit.Load(), ln.would.queue.Load(), ln.would.refuse.Load()
	s.Granted = -q.Returned
	for i := range t.Total {
		s.Granted += q.Immediate[i] + q.Outcomes[i][waitq.Granted]
		s.Waits[i] = Histogram{Counts: t.Total[i].Buckets[:], Sum: t.Total[i].Sum}
	}
	s.Holds = Histogram{Counts: t.Holds.Buckets[:], Sum: t.Holds.Sum}
}

func (s *LaneSnapshot) bound(waits, holds []time.Duration) {
	for i := range s.Waits {
		s.Waits[i].bound(waits)
	}
	s.Holds.bound(holds)
}

// add adds another one's counters and histograms.
func (s *LaneSnapshot) add(o *LaneSnapshot) {
	if s.ShedReasons == nil {
		s.ShedReasons = make(map[gate.Reason]int64)
	}
	for r, n := range o.ShedReasons {
		s.ShedReasons[r] += n
	}
	s.Granted += o.Granted
	s.Sheds += o.Sheds
	s.Canceled += o.Canceled
	s.Retries += o.Retries
	s.RepeatSheds += o.RepeatSheds
	s.WouldAdmit += o.WouldAdmit
	s.WouldQueue += o.WouldQueue
	s.WouldRefuse += o.WouldRefuse
	for i := range s.Waits {
		s.Waits[i].add(o.Waits[i])
	}
	s.Holds.add(o.Holds)
}

// hasRoom reports whether a slot is free for the highest class that waits. Whoever has
// room does not wait, but in a pause: without one, a slot that is free is just being
// handed on.
func (ln *lane) hasRoom(q waitq.Snapshot) bool {
	for i, n := range q.Waiting {
		if n > 0 {
			return q.Paused > 0 && ln.q.Room(i)
		}
	}
	return false
}

// held is how many slots each class holds: of the leases without a slot, which shadow
// mode gives, none.
func held(q waitq.Snapshot) [waitq.Classes]int64 {
	n := q.ClassLeases
	n[0] = q.InUse
	for _, m := range n[1:] {
		n[0] -= m
	}
	n[0] = max(0, n[0])
	return n
}

func byClass(n [waitq.Classes]int64) ByClass { return ByClass{n[0], n[1], n[2]} }
