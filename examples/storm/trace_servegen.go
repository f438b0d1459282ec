package main

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// windowLength is how long a law holds.
const windowLength = 600 * time.Second

// window is the law of one tenant's arrivals for windowLength: gaps of a Gamma or
// Weibull distribution. The shape is the trace's; the scale follows from the rate,
// since the fitted scale of a Weibull does not give back the rate that was measured.
type window struct {
	tenant string
	start  time.Duration
	rate   float64 // per second, above 0
	family string
	shape  float64
}

func readServegen(t *trace, l *line) {
	const day = 24 * 3600
	w := window{
		tenant: strings.Clone(l.text("tenant")), // the line is a part of what was read
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
		w.draw(r, end, func(at time.Duration) { all = append(all, arrival{at: at}) })
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all, from
}

// draw calls got with the times of the arrivals from the start of the window to end, in
// order.
func (w window) draw(r rand.Source, end time.Duration, got func(at time.Duration)) {
	gaps := w.gaps(r)
	// A stream that just begins is not like one that is under way, and more so the more
	// bursty it is: let a window pass first.
	for at := w.start - windowLength; at < end; {
		// A gap may be longer than a Duration can be.
		at += time.Duration(min(gaps.Rand(), 2*windowLength.Seconds()) * float64(time.Second))
		if at >= w.start && at < end {
			got(at)
		}
	}
}

// busiestWith returns the laws of the window with the highest rate in all among those in
// which at least so many tenants call, and the first of equals; nil where there is none.
func busiestWith(windows []window, tenants int) []window {
	at := make(map[time.Duration][]window)
	for _, w := range windows {
		at[w.start] = append(at[w.start], w)
	}
	var best []window
	most := 0.0
	for _, start := range slices.Sorted(maps.Keys(at)) {
		rate, active := 0.0, make(map[string]bool)
		for _, w := range at[start] {
			rate += w.rate
			active[w.tenant] = true
		}
		if len(active) >= tenants && rate > most {
			best, most = at[start], rate
		}
	}
	return best
}
