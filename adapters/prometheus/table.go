package promgate

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

const (
	// maxLanes is how many lanes have series of their own.
	maxLanes = 50
	// other is the lane of all the rest, and the limiter's own name for what has no room.
	other = "other"
)

// table says which lanes have series of their own: the first maxLanes, until they are
// evicted. A lane keeps what it was given when it was first seen, for its whole life: one
// that moved from "other" to a series of its own would take its counts along, and those of
// "other" would fall. So a place that an evicted lane leaves is for a lane that is made later.
//
// What is counted in "other" is all that was ever counted, less what the series of single
// lanes show, and showed when they went: what an evicted lane has counted after the last
// scrape, and a lane that no scrape has seen, is in "other" and stays there. Each part of
// that sum only rises, and so does the sum, but for what gates take back: a grant whose
// caller has left is counted in and then out. So the largest value so far is shown.
type table struct {
	rowOf map[int64]*row // the lanes with series of their own, by number
	seen  int64          // the highest number that any lane had
	gone  counts         // what the series of lanes that are no more have shown
	rest  *row           // "other", nil until there is something
}

// row is what the series of one lane show.
type row struct {
	lane string
	counts

	limit, reserve, inflight int64
	queued                   [len(priorities)]int64
	oldestWait, paused       float64
	saturated                bool
	verdicts                 map[inflight.Verdict]bool
}

// counts are what only rises.
type counts struct {
	granted, timeouts, retries, canceled, repeats int64
	waits                                         [len(priorities)]inflight.Histogram
	holds                                         inflight.Histogram
}

func newTable() table { return table{rowOf: make(map[int64]*row)} }

// rows takes in what a snapshot says, which must be a later one each time.
func (t *table) rows(s *inflight.Snapshot) []*row {
	lanes := make([]*inflight.LaneSnapshot, len(s.Lanes))
	for i := range s.Lanes {
		lanes[i] = &s.Lanes[i]
	}
	slices.SortFunc(lanes, func(a, b *inflight.LaneSnapshot) int { return cmp.Compare(a.Number, b.Number) })
	t.forget(lanes)
	// Its histograms are the snapshot's, which nobody else has.
	rest := &row{lane: other, counts: countsOf(&s.Total), verdicts: make(map[inflight.Verdict]bool)}
	rest.sub(&t.gone)
	var rows []*row
	some := false // lanes in the rest
	for _, l := range lanes {
		r := t.rowOf[l.Number]
		if r == nil && l.Number > t.seen && l.Lane != other && len(t.rowOf) < maxLanes {
			r = &row{lane: l.Lane}
			t.rowOf[l.Number] = r
		}
		t.seen = max(t.seen, l.Number)
		if r == nil {
			some = true
			rest.take(l)
			continue
		}
		before := r.counts
		*r = row{lane: r.lane, counts: countsOf(l), verdicts: make(map[inflight.Verdict]bool)}
		r.take(l)
		rest.sub(&r.counts)
		r.atLeast(&before)
		rows = append(rows, r)
	}
	if t.rest != nil {
		rest.atLeast(&t.rest.counts)
	}
	if t.rest != nil || some || rest.any() {
		t.rest = rest
		rows = append(rows, rest)
	}
	return rows
}

// forget ends the rows of lanes that are no more. lanes are by number.
func (t *table) forget(lanes []*inflight.LaneSnapshot) {
	for number, r := range t.rowOf {
		_, there := slices.BinarySearchFunc(lanes, number, func(l *inflight.LaneSnapshot, n int64) int { return cmp.Compare(l.Number, n) })
		if !there {
			t.gone.add(&r.counts, 1)
			delete(t.rowOf, number)
		}
	}
}

// take adds a lane's state to that of a row.
func (r *row) take(l *inflight.LaneSnapshot) {
	r.limit += int64(l.Limit)
	r.reserve += int64(l.Reserve)
	r.inflight += int64(l.Inflight)
	for i, n := range [...]int64{l.QueuedByPriority.Interactive, l.QueuedByPriority.Default, l.QueuedByPriority.Bulk} {
		r.queued[i] += n
	}
	r.oldestWait = max(r.oldestWait, float64(l.OldestWaitS))
	r.paused = max(r.paused, float64(l.PausedS))
	r.saturated = r.saturated || l.Saturated
	r.verdicts[l.Verdict] = true
}

func countsOf(l *inflight.LaneSnapshot) counts {
	return counts{
		granted: l.Granted, timeouts: l.ShedReasons[gate.QueueTimeout], retries: l.Retries, canceled: l.Canceled, repeats: l.RepeatSheds,
		waits: l.Waits, holds: l.Holds,
	}
}

func (c *counts) sub(o *counts) { c.add(o, -1) }

// add adds factor times what another one has. The histograms of c are its own afterwards.
func (c *counts) add(o *counts, factor int64) {
	c.granted += factor * o.granted
	c.timeouts += factor * o.timeouts
	c.retries += factor * o.retries
	c.canceled += factor * o.canceled
	c.repeats += factor * o.repeats
	for i := range c.waits {
		addTo(&c.waits[i], o.waits[i], factor)
	}
	addTo(&c.holds, o.holds, factor)
}

// atLeast makes nothing less than it is in another one.
func (c *counts) atLeast(o *counts) {
	c.granted = max(c.granted, o.granted)
	c.timeouts = max(c.timeouts, o.timeouts)
	c.retries = max(c.retries, o.retries)
	c.canceled = max(c.canceled, o.canceled)
	c.repeats = max(c.repeats, o.repeats)
	for i := range c.waits {
		raise(&c.waits[i], o.waits[i])
	}
	raise(&c.holds, o.holds)
}

func raise(h *inflight.Histogram, o inflight.Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] = max(h.Counts[i], n)
	}
	h.Sum = max(h.Sum, o.Sum)
}

func addTo(h *inflight.Histogram, o inflight.Histogram, factor int64) {
	if h.Counts == nil {
		h.Bounds, h.Counts = o.Bounds, make([]int64, len(o.Counts))
	}
	for i, n := range o.Counts {
		h.Counts[i] += factor * n
	}
	h.Sum += time.Duration(factor) * o.Sum
}

// any reports whether anything was counted.
func (c *counts) any() bool {
	n := c.granted + c.timeouts + c.retries + c.canceled + c.repeats
	for _, h := range append(c.waits[:], c.holds) {
		for _, m := range h.Counts {
			n += m
		}
	}
	return n > 0
}
