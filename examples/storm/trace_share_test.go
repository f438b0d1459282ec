package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What makes a division max-min fair, of random demands: all that there is and that is
// wanted is given, nobody has more than it wants, and who wants more than it has has as much
// as anybody.
func TestMaxMin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		demand := make([]time.Duration, r.IntN(12))
		var wanted time.Duration
		for i := range demand {
			// From equal ones to those that are a million times as large as others.
			demand[i] = time.Duration(math.Exp(r.Float64() * 20))
			if r.IntN(3) == 0 {
				demand[i] = time.Duration(1000 * r.IntN(4))
			}
			wanted += demand[i]
		}
		capacity := time.Duration(r.Float64() * 1.3 * float64(wanted+1))
		parts, level := maxMin(demand, capacity)
		require.Len(t, parts, len(demand))

		var given, most time.Duration
		for i, p := range parts {
			given += p
			most = max(most, p)
			require.GreaterOrEqual(t, p, time.Duration(0))
			require.LessOrEqual(t, p, demand[i], "more than it wants: %v of %v", demand, capacity)
		}
		require.Equal(t, min(capacity, wanted), given, "%v of %v", demand, capacity)
		// A nanosecond that cannot be divided goes to somebody.
		slack := time.Duration(len(demand))
		unsatisfied := false
		for i, p := range parts {
			if p < demand[i] {
				unsatisfied = true
				require.GreaterOrEqual(t, p, most-slack, "%v of %v: %v", demand, capacity, parts)
				require.InDelta(t, float64(level), float64(p), float64(slack))
			}
		}
		require.Equal(t, unsatisfied, level > 0 || capacity < wanted && capacity < slack)
		for i, want := range byHalving(demand, capacity) {
			require.InDelta(t, want, float64(parts[i]), float64(slack)+1, "%v of %v: %v", demand, capacity, parts)
		}
	}
}

// byHalving finds the level to which all are filled by halving, which is another way.
func byHalving(demand []time.Duration, capacity time.Duration) []float64 {
	fill := func(level float64) (parts []float64, sum float64) {
		for _, d := range demand {
			p := min(float64(d), level)
			parts, sum = append(parts, p), sum+p
		}
		return parts, sum
	}
	low, high := 0.0, 1e18
	for range 200 {
		if level := (low + high) / 2; level == low || level == high {
			break
		} else if _, sum := fill(level); sum <= float64(capacity) {
			low = level
		} else {
			high = level
		}
	}
	parts, _ := fill(low)
	return parts
}

// Of hand-made starts: what counts is the service within the window.
func TestMeasure(t *testing.T) {
	const s = time.Second
	calls := []call{
		{at: 0, key: "flood", hold: 10 * s}, // starts at once
		{at: 0, key: "flood", hold: 10 * s}, // never
		{at: 1 * s, key: "small", hold: 2 * s},
		{at: 9 * s, key: "small", hold: 4 * s}, // half a second late, and only a second is left
		{at: 9 * s, key: "late", hold: s / 2},  // never
	}
	f := measure(calls, []time.Duration{0, notStarted, 2 * s, 9*s + s/2, notStarted}, 2, 10*s)
	assert.Equal(t, 20*s, f.room)
	assert.Equal(t, 23*s+s/2, f.demand)
	assert.Equal(t, 12*s+s/2, f.served)
	assert.Equal(t, 2, f.left)
	// 3 s and half a second are all that two of them want; the flood may have the rest.
	assert.Equal(t, []tenantShare{
		{s / 2, s / 2, 0},
		{20 * s, 16*s + s/2, 10 * s},
		{3 * s, 3 * s, 2*s + s/2},
	}, f.tenants)
	assert.Equal(t, 16*s+s/2, f.level)
	assert.Zero(t, f.worst())
	assert.InDelta(t, 10/16.5, f.median(), 1e-9)
	assert.InDelta(t, 10/16.5, f.largest(), 1e-9)
	assert.Equal(t, 3, f.below())
	assert.Equal(t, latency{3, s, s, s, s}, f.waits, "of the small and the late one, which waits still")
	assert.Len(t, f.ranks(), 3)
	assert.InDelta(t, 100, f.ranks()[2].T, 1e-9)

	none := measure(nil, nil, 2, 10*s)
	assert.Zero(t, none.worst())
	assert.Zero(t, none.largest())
	assert.Zero(t, none.waits)
}

// The busiest window with so many tenants, against one that looks at each by itself.
func TestBusiestWith(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		var all []window
		for start := range 4 {
			for tenant := range r.IntN(5) {
				all = append(all, window{tenant: string(rune('a' + tenant)), start: time.Duration(start) * windowLength, rate: float64(1 + r.IntN(4))})
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for least := 1; least <= 5; least++ {
			bestRate, bestStart, found := 0.0, time.Duration(0), false
			for start := range 4 {
				rate, n := 0.0, 0
				for _, w := range all {
					if w.start == time.Duration(start)*windowLength {
						rate, n = rate+w.rate, n+1
					}
				}
				if n >= least && rate > bestRate {
					bestRate, bestStart, found = rate, time.Duration(start)*windowLength, true
				}
			}
			got := busiestWith(all, least)
			require.Equal(t, found, len(got) > 0)
			rate := 0.0
			for _, w := range got {
				require.Equal(t, bestStart, w.start)
				rate += w.rate
			}
			require.InDelta(t, bestRate, rate, 1e-9)
		}
	}
	twice := []window{{tenant: "a", rate: 1}, {tenant: "a", rate: 2}}
	assert.Empty(t, busiestWith(twice, 2), "one tenant with two laws is one")
	assert.True(t, slices.Equal(twice, busiestWith(twice, 1)))
}
