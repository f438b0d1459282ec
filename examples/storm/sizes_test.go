package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSizesHaveTheirQuantiles(t *testing.T) {
	s := bodies().sizes
	want := map[float64]int64{0.5: 28_000, 0.9: 109_000, 0.99: 342_000}
	for p, bytes := range want {
		assert.Equal(t, bytes, s.at(p), "p%g", 100*p)
	}
	for _, n := range []int{100, 400, 10_000} {
		for seed := range uint64(5) {
			drawn := s.draw(rand.New(rand.NewPCG(seed, 0)), n)
			assert.False(t, slices.IsSorted(drawn), "in random order")
			slices.Sort(drawn)
			for p, bytes := range want {
				// Between the strata on both sides, whatever the seed.
				assert.InDelta(t, bytes, drawn[int(p*float64(n))], float64(s.at(p+1.0/float64(n))-s.at(p-1.0/float64(n))), "p%g of %d", 100*p, n)
			}
		}
	}
}

func TestSizesGrowWithP(t *testing.T) {
	s := bodies().sizes
	last := int64(0)
	for p := 0.0; p <= 1; p += 0.001 {
		at := s.at(p)
		assert.GreaterOrEqual(t, at, last)
		last = at
	}
	assert.Equal(t, int64(1_000), s.at(0))
	assert.Equal(t, int64(1_000_000), s.at(1))
}
