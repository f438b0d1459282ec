package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// row is a result in numbers.
type row struct {
	name     string
	total    int
	answered int
	wrong    counts
	refused  counts // by reason
	lost     counts // by cause
	proper   counts // of the refused, those that say whether to come back, and when

	peakFlight, budget, peakMemory int64 // 0 = none, or unknown

	peer  *peer // nil = no other library's
	limit peerLimit

	all, small latency // of those answered, and of those with small bodies
	end        string

	group   *groupCounts // nil = there was no cgroup
	pressed *pressed     // nil = unknown

	back *backEndResult // nil = the scenario has none
	chat latency        // how long chats waited

	flood latency // of the answered of a flood

	fair *fairness // nil = the scenario is not about shares
}

// counts says how many there are of what.
type counts map[string]int

func (c counts) sum() int {
	n := 0
	for _, k := range c {
		n += k
	}
	return n
}

// String lists the counts, the most first.
func (c counts) String() string {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if c[a] != c[b] {
			return c[b] - c[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, c[name])
	}
	return strings.Join(names, ", ")
}

// cell is the sum, with the counts where there are any, or what it is of where that is
// one thing.
func (c counts) cell() string {
	switch len(c) {
	case 0:
		return "0"
	case 1:
		for what, n := range c {
			return fmt.Sprintf("%d (%s)", n, what)
		}
	}
	return fmt.Sprintf("%d (%s)", c.sum(), c)
}

func summarise(r result) row {
	w := row{
		name: r.name, total: len(r.outcomes), end: r.end,
		wrong: counts{}, refused: counts{}, lost: counts{}, proper: counts{},
		peakFlight: r.peakFlight, peakMemory: r.peakMemory, peer: r.peer, limit: r.limit, group: r.group, fair: r.fair,
	}
	if r.samples != nil {
		w.budget, w.pressed = r.samples.budget, r.samples.pressed
	}
	for _, o := range r.outcomes {
		switch o.verdict {
		case answered:
			w.answered++
		case refused:
			w.refused[o.why]++
			if o.proper {
				w.proper[o.why]++
			}
		case wrong:
			w.wrong[o.why]++
		case lost:
			w.lost[o.why]++
		}
	}
	if r.died > 0 {
		w.end += " after " + seconds(r.died)
	}
	w.all = latencyOf(r.outcomes, math.MaxInt64)
	if w.back = r.back; w.back != nil {
		w.chat = spread(chatWaits(r.outcomes, w.back.service))
		w.flood = latencyOf(only(r.outcomes, flood), math.MaxInt64)
	} else {
		w.small = latencyOf(r.outcomes, smallBytes)
	}
	return w
}

// latency is how long the answered took, from when a request was due to the end of its
// answer, or how long chats waited.
type latency struct {
	n                  int // of them; 0 = the rest says nothing
	p50, p90, p99, max time.Duration
}

// only are the outcomes of one kind of calls.
func only(outcomes []outcome, k kind) []outcome {
	var of []outcome
	for _, o := range outcomes {
		if o.kind == k {
			of = append(of, o)
		}
	}
	return of
}

// latencyOf is of the answered with bodies below a size.
func latencyOf(outcomes []outcome, below int64) latency { return spread(latencies(outcomes, below)) }

// spread is of any times, sorted.
func spread(took []time.Duration) latency {
	return latency{
		n: len(took), p50: percentile(took, 0.50), p90: percentile(took, 0.90), p99: percentile(took, 0.99), max: percentile(took, 1),
	}
}

// cell is one of its times, where there is any.
func (l latency) cell(d time.Duration) string {
	if l.n == 0 {
		return "-"
	}
	return seconds(d)
}

// smallBytes is the size from which a body is not small: headgate's own default for a
// heavy one.
const smallBytes = 256 << 10

// latencies returns how long the answered with bodies below a size took, sorted.
func latencies(outcomes []outcome, below int64) []time.Duration {
	var took []time.Duration
	for _, o := range outcomes {
		if o.verdict == answered && o.size < below {
			took = append(took, o.took)
		}
	}
	slices.Sort(took)
	return took
}

// percentile returns the least value that a part p of the sorted values does not
// exceed, 0 when there are none.
func percentile[T ~int64](sorted []T, p float64) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(p*float64(len(sorted))))-1, 0)]
}

// mib writes bytes as MiB.
func mib(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// seconds writes a duration short: milliseconds below a second.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
