package main

import (
	"math"
	"math/rand/v2"
)

// sizes is a distribution of body sizes, given by points of its quantile function
// from p 0 to p 1. Between two points the logarithm of the size is linear in p, since
// sizes spread over orders of magnitude.
type sizes []quantile

type quantile struct {
	p     float64
	bytes int64
}

// at returns the p-quantile, 0 <= p <= 1.
func (s sizes) at(p float64) int64 {
	for i := 1; i < len(s); i++ {
		lo, hi := s[i-1], s[i]
		if p > hi.p {
			continue
		}
		part := (p - lo.p) / (hi.p - lo.p)
		return int64(math.Round(float64(lo.bytes) * math.Pow(float64(hi.bytes)/float64(lo.bytes), part)))
	}
	return s[len(s)-1].bytes
}

// draw returns n sizes in random order. One is drawn from each n-th of the
// distribution, so that few sizes have its quantiles as well as many.
func (s sizes) draw(r *rand.Rand, n int) []int64 {
	out := make([]int64, n)
	for i, stratum := range r.Perm(n) {
		out[i] = s.at((float64(stratum) + r.Float64()) / float64(n))
	}
	return out
}
