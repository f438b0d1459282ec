package inflight

import "time"

// Verdict says in one word what goes on in a lane.
type Verdict string

// The verdicts.
const (
	// Idle: nothing is in flight and nobody waits.
	Idle Verdict = "idle"
	// Busy: calls are in flight, and neither of the two below holds.
	Busy Verdict = "busy"
	// LocalQueue: calls wait here, on purpose. Somebody has waited for 60 s without
	// a break while all slots that the waiting class may use are taken, or the 90th
	// percentile of the waits is above SlowWait. Raise MaxInflight if the back end
	// can serve more; else send less.
	LocalQueue Verdict = "local_queue"
	// UpstreamDegraded: the back end is slow or fails. Of the answers of the last
	// minute at least 3, and at least a tenth, were bad (429, 5xx, an error, 3 times
	// the usual time to the first byte, a retry of a call that had a slot) while slots
	// were free. Raising MaxInflight does not help.
	UpstreamDegraded Verdict = "upstream_degraded"
	// Both: LocalQueue and UpstreamDegraded.
	Both Verdict = "both"
)

const (
	// saturatedAfter is how long a queue lasts before its lane is saturated.
	saturatedAfter = 60 * time.Second
	// leastBad and badPart are how many bad answers degrade a back end.
	leastBad = 3
	badPart  = 10
)

// evidence is what a verdict is found from.
type evidence struct {
	inflight  int
	queued    int
	queuedFor time.Duration // without a break
	room      bool          // a slot is free for the highest class that waits
	p90, slow time.Duration
	answers   int64 // of the last minute
	bad       int64 // of those, while a slot was free
}

func (e evidence) saturated() bool { return e.queued > 0 && e.queuedFor >= saturatedAfter }

func (e evidence) verdict() Verdict {
	local := e.saturated() && !e.room || e.p90 > e.slow
	degraded := e.bad >= leastBad && e.bad*badPart >= e.answers
	switch {
	case local && degraded:
		return Both
	case local:
		return LocalQueue
	case degraded:
		return UpstreamDegraded
	case e.inflight > 0 || e.queued > 0:
		return Busy
	}
	return Idle
}
