package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The memory scenario: 200 bodies of 2 MiB arrive at one moment, as fast as the connection
// takes them. They are 400 MiB, more than the app's memory limit of 256 MiB, and the app
// reads each into memory.
//
// Nothing paces the clients, so without headgate all 200 are read at once, which takes a
// second or two on two cores. The hold must be long beside what that time varies by, else
// the first bodies have left before the last are there: with 100 ms the app lives in about
// half of all runs. With headgate the 4 that fit into its budget are read at a time, and the
// others stay on the clients' side: 50 rounds of the hold and the time to read, under half a
// minute. The queue timeout is four times that.
const (
	memoryBodies = 200
	memorySize   = 2 << 20
	memoryHold   = 500 * time.Millisecond
	memoryWait   = 2 * time.Minute
	memoryEvery  = 15 * time.Second // where -duration makes more of them
)

func memoryStorm() scenario { return memoryStormAt(memoryHold) }

// memoryStormAt is the scenario with a hold of its own.
func memoryStormAt(hold time.Duration) scenario {
	return scenario{
		name:   "memory",
		about:  fmt.Sprintf("%d bodies of %s at once, each held for %v", memoryBodies, mib(memorySize), hold),
		config: fmt.Sprintf("admission:\n  queue_timeout: %v\n", memoryWait),
		wait:   memoryWait,
		plan: func(_ *rand.Rand, length time.Duration) []call {
			var calls []call
			for at := time.Duration(0); at <= length; at += memoryEvery {
				for range memoryBodies {
					calls = append(calls, call{at: at, hold: hold, size: memorySize})
				}
			}
			return calls
		},
		columns: memoryColumns,
	}
}

// memoryColumns are those of the scenario: whether each client was told what to do next, and
// whether the kernel had to end the app.
func memoryColumns(peers bool) []column {
	c := map[string]column{}
	for _, other := range bodyColumns(peers) {
		c[other.head] = other
	}
	return slices.DeleteFunc([]column{
		c["app"], c["limit"], c["answered"],
		{head: "413, or 503 with Retry-After", note: "refused so that the client knows whether to come back, and when; by reason", cell: func(w row) string { return w.proper.cell() }},
		{head: "other answers", note: "any other status, or the wrong digest", cell: func(w row) string { return w.improper().cell() }},
		c["lost"], c["peak in flight"], c["peak memory"],
		{head: "kills", note: "of processes in the app's cgroup, by the cgroup's own counter: oom_kill of memory.events, in v1 of memory.oom_control", cell: row.killsCell},
		{head: "worst pressure", note: "the worst severity in its status, every " + period.String() + ", and the signal that raised it", cell: row.pressureCell},
		c["end"], c["lacks"],
	}, func(c column) bool { return c.head == "" })
}

func (w row) killsCell() string {
	if w.group == nil {
		return "n/a"
	}
	return fmt.Sprint(w.group.kills)
}

func (w row) pressureCell() string {
	if w.pressed == nil {
		return "-"
	}
	if w.pressed.signal == "" {
		return w.pressed.worst.String()
	}
	return fmt.Sprintf("%s (%s)", w.pressed.worst, w.pressed.signal)
}

// improper are the answers that are neither right nor a refusal that helps the client.
func (w row) improper() counts {
	all := counts{}
	for why, n := range w.wrong {
		all[why] += n
	}
	for why, n := range w.refused {
		if n -= w.proper[why]; n > 0 {
			all[why] += n
		}
	}
	return all
}
