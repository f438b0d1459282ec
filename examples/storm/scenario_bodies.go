package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The bodies scenario: small and large request bodies arrive steadily, and in the
// midst of them a burst of large ones, all at once, more than the app's memory limit
// can hold.
//
// Clients send at the pace of a common uplink, so the burst takes 2 s to arrive and is
// all there at the same time, however fast the machine is. The hold is what a quick
// back end takes. At 8 MiB, which is the budget that headgate derives from a limit of
// 256 MiB, 3 or 4 bodies of the burst are in flight at a time: some 60 rounds of the
// hold and the time to read, 8 to 10 s on two cores. The queue timeout is six times
// that, so that slower machines answer everybody too.
const (
	bodiesRate      = 40 // requests per second
	bodiesWait      = time.Minute
	bodiesHold      = 100 * time.Millisecond
	bodiesUplink    = 1 << 20 // bytes per second
	bodiesBurst     = 200
	bodiesBurstSize = 2 << 20
	bodiesHuge      = 5_000_000
)

func bodies() scenario {
	return scenario{
		name:   "bodies",
		about:  fmt.Sprintf("%d requests per second, and %d bodies of 2 MiB and 4 of 5 MB at once", bodiesRate, bodiesBurst),
		length: 10 * time.Second,
		config: fmt.Sprintf("admission:\n  queue_timeout: %v\n", bodiesWait),
		wait:   bodiesWait,
		plan:   planBodies,
		sizes: sizes{
			{0, 1_000},
			{0.5, 28_000},
			{0.9, 109_000},
			{0.99, 342_000},
			{1, 1_000_000},
		},
		hold: bodiesHold,
	}
}

func planBodies(r *rand.Rand, length time.Duration) []call {
	n := int(bodiesRate * length.Seconds())
	calls := make([]call, 0, n+bodiesBurst+6)
	add := func(at time.Duration, size int64) {
		calls = append(calls, call{at: at, hold: bodiesHold, size: size, rate: bodiesUplink})
	}
	steady := bodies().sizes.draw(r, n)
	for _, size := range steady {
		// Points thrown uniformly are a Poisson process, given their number.
		add(time.Duration(r.Int64N(int64(length))), size)
	}
	add(length*6/10, bodiesHuge)
	add(length*8/10, bodiesHuge)

	burst := length * 2 / 10
	for range bodiesBurst {
		add(burst, bodiesBurstSize)
	}
	for range 4 {
		add(burst, bodiesHuge)
	}
	return calls
}
