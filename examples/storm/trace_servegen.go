package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// windowLength is how long a law holds.
const windowLength = 600 * time.Second

// window is the law of one tenant's arrivals for windowLength: gaps of a Gamma or
// Weibull distribution. The shape is the trace's; the scale follows from the rate,
// since the fitted scale of a Weibull does not give back the rate that was measured.
type window struct {
	start  time.Duration
	rate   float64 // per second, above 0
	family string
	shape  float64
}

func readServegen(t *trace, l *line) {
	const day = 24 * 3600
	w := window{
		start:  time.Duration(l.number("window_start_s", 0, 366*day) * float64(time.Second)),
		rate:   l.number("rate_per_s", 0, 1e4),
		family: l.text("family"),
	}
	// Below the least shape the mean is made by gaps that practically never come.
	switch w.family {
	case "Gamma":
		w.shape = l.number("p1", 0.01, 1e3)
	case "Weibull":
		w.shape = l.number("p1", 0.05, 1e3)
	default:
		l.fail("family", "Gamma or Weibull")
	}
	l.number("cv", 0, math.MaxFloat64)
	l.number("p2", math.SmallestNonzeroFloat64, math.MaxFloat64)
	if w.rate > 0 {
		t.windows = append(t.windows, w)
	}
}

// gaps returns what draws the seconds between arrivals.
func (w window) gaps(r rand.Source) interface{ Rand() float64 } {
	if w.family == "Gamma" { // mean = shape x scale; Beta is 1/scale
		return distuv.Gamma{Alpha: w.shape, Beta: w.shape * w.rate, Src: r}
	}
	// mean = scale x Γ(1 + 1/shape)
	return distuv.Weibull{K: w.shape, Lambda: 1 / (w.rate * math.Gamma(1+1/w.shape)), Src: r}
}

// drawArrivals draws, for each tenant, the arrivals of length from the start of the
// window on that has the highest rate in all, which it returns as well.
func drawArrivals(r *rand.Rand, windows []window, length time.Duration) ([]arrival, time.Duration) {
	rates := make(map[time.Duration]float64)
	for _, w := range windows {
		rates[w.start] += w.rate
	}
	from := windows[0].start
	for start, rate := range rates {
		if rate > rates[from] || rate == rates[from] && start < from {
			from = start
		}
	}
	var all []arrival
	for _, w := range windows {
		end := min(w.start+windowLength, from+length)
		if w.start < from || w.start >= end {
			continue
		}
		gaps := w.gaps(r)
		// A stream that just begins is not like one that is under way, and more so
		// the more bursty it is: let a window pass first.
		for at := w.start - windowLength; at < end; {
			// A gap may be longer than a Duration can be.
			at += time.Duration(min(gaps.Rand(), 2*windowLength.Seconds()) * float64(time.Second))
			if at >= w.start && at < end {
				all = append(all, arrival{at: at})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all, from
}
