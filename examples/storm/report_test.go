package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outcomes makes n of a kind.
func outcomes(n int, v verdict, why string, took time.Duration) []outcome {
	all := make([]outcome, n)
	for i := range all {
		all[i] = outcome{verdict: v, why: why, took: took}
	}
	return all
}

// exampleReport is of made-up results.
func exampleReport() *report {
	var bare, with []outcome
	bare = append(bare, outcomes(160, answered, "", 103*time.Millisecond)...)
	bare = append(bare, outcomes(40, lost, "connection reset", time.Second)...)
	bare = append(bare, outcomes(400, lost, "connection refused", 0)...)
	with = append(with, outcomes(300, answered, "", 102*time.Millisecond)...)
	for _, o := range outcomes(285, answered, "", 6789*time.Millisecond) {
		o.size = 2 << 20
		with = append(with, o)
	}
	with = append(with, outcomes(9, refused, "queue_timeout", 15*time.Second)...)
	with = append(with, outcomes(5, refused, "admission_busy", 0)...)
	with = append(with, outcomes(1, wrong, "status 500", 0)...)
	r := &report{Title: "Scenario <bodies>; 600 requests, seed 1", Setting: "Each app: cgroup (v2) of 256 MiB"}
	for _, c := range columns() {
		r.Heads = append(r.Heads, c[0])
	}
	r.Data.Limit = 256 << 20
	r.add(result{
		name: "bare", outcomes: bare, end: "killed: out of memory", died: 3600 * time.Millisecond,
		peakFlight: 402*1<<20 + 1<<19, peakMemory: 256 << 20,
		samples: &samples{memory: []point{{0, 1 << 20}}, flight: []point{{0, 0}}},
	})
	r.add(result{
		name: "headgate", with: true, outcomes: with, end: "exit 0", peakFlight: 8 << 20,
		samples: &samples{waiting: []point{{0.05, 17}}, budget: 8 << 20, source: "cgroup"},
	})
	return r
}

func TestTable(t *testing.T) {
	golden, err := os.ReadFile("testdata/table.golden")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, exampleReport().writeTable(&b))
	assert.Equal(t, string(golden), b.String())
	assert.Error(t, exampleReport().writeTable(fullDisk{}))
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestReport(t *testing.T) {
	r := exampleReport()
	file := filepath.Join(t.TempDir(), "report.html")
	var table bytes.Buffer
	require.NoError(t, r.publish(&table, file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	page := string(text)

	for _, cells := range r.Rows {
		for _, cell := range cells {
			assert.Contains(t, page, "<td>"+cell+"</td>")
		}
	}
	assert.Contains(t, page, "Scenario &lt;bodies&gt;", "text is escaped")
	assert.Contains(t, page, "killed: out of memory after 3.6 s")
	assert.Contains(t, page, `"limit":268435456`)
	assert.Contains(t, page, `"died":3.6`)
	assert.Contains(t, page, `{"t":0.05,"v":17}`)
	for _, id := range []string{"memory", "flight", "budget", "latency"} {
		assert.Contains(t, page, fmt.Sprintf(`id=%q`, id))
		assert.Contains(t, page, fmt.Sprintf(`draw(%q`, id))
	}
	assert.Contains(t, page, "var uPlot=function()")

	assert.Error(t, r.publish(&table, filepath.Join(file, "below-a-file")))
}

// The page needs nothing but itself.
func TestReportLoadsNothing(t *testing.T) {
	page, err := exampleReport().html()
	require.NoError(t, err)
	// The chart library's banner says where it is from; nothing follows it.
	text := strings.Replace(string(page), "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1)
	assert.NotRegexp(t, `(?i)https?:|wss?:|["'(]//\w`, text)
	assert.NotRegexp(t, `(?i)<link|<script\s+[^>]*src|<img|<iframe|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\(`, text)
}

func TestPercentile(t *testing.T) {
	var none []time.Duration
	assert.Zero(t, percentile(none, 0.5))
	all := []time.Duration{1, 2, 3, 4}
	for p, want := range map[float64]time.Duration{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		assert.Equal(t, want, percentile(all, p), "p%g", 100*p)
	}
}

func TestCumulative(t *testing.T) {
	var sorted []time.Duration
	for i := range 1000 {
		sorted = append(sorted, time.Duration(i)*time.Millisecond)
	}
	points := cumulative(sorted, 2000)
	assert.LessOrEqual(t, len(points), 602)
	assert.Equal(t, point{0, 0.05}, points[0])
	assert.Equal(t, point{0.999, 50}, points[len(points)-1], "half were answered at all")
	assert.Empty(t, cumulative(nil, 10))
}

func TestCounts(t *testing.T) {
	assert.Equal(t, "0", counts{}.cell())
	assert.Equal(t, "8 (c 4, a 2, b 2)", counts{"a": 2, "b": 2, "c": 4}.cell())
}
