package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The tenants scenario: one tenant sends 1,000 calls at one moment, and when they are there
// twenty others send one each. The back end serves 8 at a time and lets the others wait
// inside, first come first served.
//
// With the lanes off all 1,020 wait there, and the twenty stand behind the flood: 125 service
// times, less what has passed. With the lanes in enforce 8 are at the back end at a time,
// the others wait above it in their tenants' lanes, and each of the 21 tenants has its turn:
// the slots of three service times are enough for one call of each. That is the bar: ceil(21/8)
// service times, and one more for the calls of the flood that run already.
//
// Either way 1,020 calls in 8 slots are 128 service times: 26 s at 200 ms, and the last ones
// may wait for three times that.
const (
	tenantsService  = 200 * time.Millisecond
	tenantsFlood    = 1000
	tenantsOthers   = 20
	tenantsCapacity = 8
	tenantsQueue    = 1100
	tenantsWait     = 90 * time.Second
	tenantsEvery    = time.Minute // where -duration makes more of them
	// smallCall is what a lane charges for a small call that is no stream.
	smallCall = 6
	// tenantsBar is how many service times each of the others may wait.
	tenantsBar = (tenantsOthers+1+tenantsCapacity-1)/tenantsCapacity + 1
)

const floodKey = "storm-flood"

func tenantStorm() scenario { return tenantStormAt(tenantsService, tenantsFlood) }

// tenantStormAt is the scenario in service times of its own, with a flood of so many calls.
func tenantStormAt(service time.Duration, many int) scenario {
	lanes := fmt.Sprintf(`lanes:
  mode: enforce
  virtual_lanes: true
  algorithm: fixed
  initial_limit: %d
  max_queue_count: %d
  max_queue_cost: %d
  max_wait: %v
`, smallCall*tenantsCapacity, tenantsQueue, smallCall*tenantsQueue, tenantsWait)
	return scenario{
		name: "tenants",
		about: fmt.Sprintf("one tenant sends %d calls at once and %d others one each, at a back end of capacity %d and service time %v where the others wait",
			many, tenantsOthers, tenantsCapacity, service),
		config:   lanes + tenantKeys(),
		lanesOff: "lanes:\n  mode: off\n" + tenantKeys(),
		wait:     tenantsWait,
		plan: func(_ *rand.Rand, length time.Duration) []call {
			var calls []call
			for at := time.Duration(0); at <= length; at += tenantsEvery {
				for range many {
					calls = append(calls, call{at: at, kind: flood, key: floodKey})
				}
				// The flood must be there, which takes a moment; half a service time more, so
				// that nothing is about to end just then.
				then := at + 11*service/2
				for i := range tenantsOthers {
					calls = append(calls, call{at: then, kind: chat, key: otherKey(i)})
				}
			}
			return calls
		},
		columns: tenantColumns,
		backEnd: &backEnd{capacity: tenantsCapacity, service: service, queues: true},
	}
}

// otherKey is what the i-th of the others presents.
func otherKey(i int) string { return fmt.Sprintf("storm-other-%d", i) }

// tenantKeys is the YAML of all tenants.
func tenantKeys() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tenants:\n  - {name: flood, key: %s}\n", floodKey)
	for i := range tenantsOthers {
		fmt.Fprintf(&b, "  - {name: other-%d, key: %s}\n", i, otherKey(i))
	}
	return b.String()
}

// tenantColumns are those of the scenario: what the flood costs the others, and itself.
func tenantColumns(bool) []column {
	return []column{
		{head: "app", cell: func(w row) string { return w.name }},
		{head: "answered", note: "chat completions, those of the flood and of the others", cell: func(w row) string { return fmt.Sprintf("%d of %d", w.answered, w.total) }},
		{head: "refused or failed", note: "refused, answered with an error, or not answered, by reason", cell: func(w row) string { return w.failed().cell() }},
		{head: "others' p50 wait", note: "of the tenants with one call each: from when it was due to its end, less the service time", cell: func(w row) string { return w.chat.cell(w.chat.p50) }},
		{head: "others' longest wait", cell: func(w row) string { return w.chat.cell(w.chat.max) }},
		{head: "in service times", note: fmt.Sprintf("that longest wait, and the bar: ceil(%d tenants / capacity) + 1", tenantsOthers+1), cell: row.barCell},
		{head: "flood's last", note: "when the last call of the flood was answered, from when it was due", cell: func(w row) string { return w.flood.cell(w.flood.max) }},
		{head: "most at once", note: "calls at the back end, those included that wait inside, and its capacity", cell: func(w row) string {
			return fmt.Sprintf("%d of %d", w.back.did.MaxConcurrent, w.back.capacity)
		}},
		{head: "end", note: "how the app ended", cell: func(w row) string { return w.end }},
	}
}

func (w row) barCell() string {
	if w.chat.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f, bar %d", w.chat.max.Seconds()/w.back.service.Seconds(), tenantsBar)
}
