package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/benchmark/parse"
)

// bar is a promise: ours, a benchmark of one of our gates or of a middleware
// around one, takes at most most times as long as the peer.
type bar struct {
	family string
	peer   string
	most   float64 // 0 = no promise, only shown
	below  bool    // below most, not at most
	allocs int64   // most allocations of ours, -1 = no promise
	single bool    // measured with GOMAXPROCS=1 too
	rounds string  // benchtime of this family, where the setup is what takes the time
}

var bars = []bar{
	{family: "Uncontended", peer: "xsync", most: 1.5, single: true},
	{family: "Uncontended", peer: "failsafe-adaptive", most: 1.0 / 6, single: true},
	{family: "Parallel", peer: "xsync", most: 1.25},
	{family: "Contended", peer: "xsync", most: 1.15, single: true},
	{family: "Contended", peer: "failsafe-adaptive", most: 1, below: true, single: true},
	{family: "Contended", peer: "failsafe-bulkhead", most: 1, below: true, single: true},
	{family: "Contended", peer: "chi-throttle", most: 1, below: true, single: true},
	{family: "ContendedMixed", peer: "xsync", most: 1.4, single: true},
	{family: "HandOver", peer: "xsync", most: 1, rounds: "50000x"},
	{family: "Middleware", peer: "withcontext", most: 1.5, allocs: 2, single: true},
	{family: "Middleware", peer: "failsafe-adaptive", most: 1, below: true, allocs: 2, single: true},
	{family: "Middleware", peer: "failsafe-bulkhead", allocs: -1},
	{family: "Middleware", peer: "chi-throttle", allocs: -1},
	{family: "Middleware", peer: "gozero-maxconns", allocs: -1},
	{family: "Middleware", peer: "xsync", allocs: -1},
	{family: "Transport", peer: "failsafe-adaptive", allocs: -1},
	{family: "Transport", peer: "failsafe-bulkhead", allocs: -1},
}

// row is a bar for two benchmarks that exist.
type row struct {
	bar
	ours, peer string // benchmarks
	cpu        int
}

func (r row) task(bench string) task { return task{bench, r.cpu, r.rounds} }

// rowsFor returns a row for each of our benchmarks among names and each bar of its
// family that the pattern matches.
func rowsFor(names []string, pattern *regexp.Regexp) []row {
	slices.Sort(names)
	var rows []row
	for _, b := range bars {
		for _, name := range names {
			peer := b.family + "/" + b.peer
			if !strings.HasPrefix(name, b.family+"/headgate-") || !slices.Contains(names, peer) || !pattern.MatchString(name) {
				continue
			}
			rows = append(rows, row{b, name, peer, 0})
			if b.single {
				rows = append(rows, row{b, name, peer, 1})
			}
		}
	}
	return rows
}

// table prints the rows in Markdown.
func table(rows []row, runs []run) string {
	var out strings.Builder
	out.WriteString("| benchmark | peer | CPUs | ratio | lowest .. highest | bar | | ours | peer | allocs |\n")
	out.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		var ratios, ours, peers []float64
		var allocs []float64
		for _, run := range runs {
			a, b := run[r.task(r.ours)], run[r.task(r.peer)]
			ratios = append(ratios, a.NsPerOp/b.NsPerOp)
			ours, peers = append(ours, a.NsPerOp), append(peers, b.NsPerOp)
			allocs = append(allocs, allocsOf(a))
		}
		ratio, cpus := median(ratios), "all"
		if r.cpu > 0 {
			cpus = fmt.Sprint(r.cpu)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | **%.2f** | %.2f .. %.2f | %s | %s | %.4g ns | %.4g ns | %.0f |\n",
			r.ours, r.bar.peer, cpus, ratio, slices.Min(ratios), slices.Max(ratios),
			r.promise(), r.verdict(ratio, median(allocs)), median(ours), median(peers), median(allocs))
	}
	return out.String()
}

func allocsOf(b parse.Benchmark) float64 { return float64(b.AllocsPerOp) }

func (b bar) promise() string {
	if b.most == 0 {
		return "-"
	}
	sign := "<="
	if b.below {
		sign = "<"
	}
	s := fmt.Sprintf("%s %.3g", sign, b.most)
	if b.allocs >= 0 {
		s += fmt.Sprintf(", %d allocs", b.allocs)
	}
	return s
}

func (b bar) verdict(ratio, allocs float64) string {
	switch {
	case b.most == 0:
		return "-"
	case ratio > b.most, b.below && ratio == b.most:
		return "missed"
	case b.allocs >= 0 && allocs > float64(b.allocs):
		return "missed (allocs)"
	}
	return "met"
}

// median of at least one value.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
