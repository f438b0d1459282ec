package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/tools/benchmark/parse"
)

func TestMedian(t *testing.T) {
	assert.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	assert.InDelta(t, 1.5, median([]float64{9, 1, 2, 0}), 0)
	assert.InDelta(t, 7, median([]float64{7}), 0)
}

func TestExactly(t *testing.T) {
	assert.Equal(t, "^BenchmarkContended$/^failsafe-adaptive$", exactly("Contended/failsafe-adaptive"))
}

// A row for each of our benchmarks, where there is a peer to compare with.
func TestRowsFor(t *testing.T) {
	names := []string{
		"Parallel/xsync", "Parallel/headgate-admission", "Parallel/headgate-lanes", "Parallel/failsafe-bulkhead",
		"Middleware/headgate-nethttp", "Contended/xsync",
	}
	var got []string
	for _, r := range rowsFor(names, regexp.MustCompile("")) {
		got = append(got, r.ours+" "+r.peer)
	}
	assert.Equal(t, []string{
		"Parallel/headgate-admission Parallel/xsync",
		"Parallel/headgate-lanes Parallel/xsync",
	}, got)
	assert.Empty(t, rowsFor(names, regexp.MustCompile("^Middleware")))
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		bar           bar
		ratio, allocs float64
		want          string
	}{
		{bar{most: 1.5}, 1.5, 0, "met"},
		{bar{most: 1.5}, 1.51, 0, "missed"},
		{bar{most: 1.5}, 1, 1, "missed (allocs)"},
		{bar{most: 1.5, allocs: -1}, 1, 99, "met"},
		{bar{most: 1, below: true}, 1, 0, "missed"},
		{bar{most: 1, below: true}, 0.99, 0, "met"},
		{bar{allocs: -1}, 99, 99, "-"},
	} {
		assert.Equal(t, c.want, c.bar.verdict(c.ratio, c.allocs), "%+v", c)
	}
}

// The ratio is taken inside each run: noise that hits both sides of a run alike
// does not show.
func TestTable(t *testing.T) {
	r := row{bar{family: "F", peer: "p", most: 2, allocs: 0}, "F/headgate-x", "F/p", 0}
	var runs []run
	for _, slow := range []float64{1, 10, 3} {
		runs = append(runs, run{
			r.task("F/headgate-x"): parse.Benchmark{NsPerOp: 15 * slow},
			r.task("F/p"):          parse.Benchmark{NsPerOp: 10 * slow},
		})
	}
	lines := strings.Split(strings.TrimSpace(table([]row{r}, runs)), "\n")
	assert.Len(t, lines, 3)
	assert.Equal(t, "| F/headgate-x | p | all | **1.50** | 1.50 .. 1.50 | <= 2, 0 allocs | met | 45 ns | 30 ns | 0 |", lines[2])
}
