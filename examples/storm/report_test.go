package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/pressure"
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

// exampleStorms are of made-up results: one as without other libraries, one with.
func exampleStorms() []*storm {
	var bare, with []outcome
	bare = append(bare, outcomes(160, answered, "", 103*time.Millisecond)...)
	bare = append(bare, outcomes(40, lost, "connection reset", time.Second)...)
	bare = append(bare, outcomes(400, lost, "connection refused", 0)...)
	with = append(with, outcomes(300, answered, "", 102*time.Millisecond)...)
	for _, o := range outcomes(285, answered, "", 6789*time.Millisecond) {
		o.size = 2 << 20
		with = append(with, o)
	}
	for _, o := range outcomes(9, refused, "queue_timeout", 15*time.Second) {
		o.proper = true
		with = append(with, o)
	}
	with = append(with, outcomes(5, refused, "admission_busy", 0)...)
	with = append(with, outcomes(1, wrong, "status 500", 0)...)
	first := &storm{title: "Scenario <bodies>", scenario: scenario{name: "bodies", wait: time.Minute}, length: 10 * time.Second, calls: make([]call, 600), limit: "cgroup (v2) of 256 MiB", bytes: 256 << 20}
	first.results = append(first.results, result{
		name: "bare", outcomes: bare, end: "killed: out of memory", died: 3600 * time.Millisecond,
		peakFlight: 402*1<<20 + 1<<19, peakMemory: 256 << 20, group: &groupCounts{kills: 1, peak: 256 << 20},
		samples: &samples{memory: []point{{0, 1 << 20}}, flight: []point{{0, 0}}}, took: 10 * time.Second,
	}, result{
		name: "headgate", outcomes: with, end: "exit 0", peakFlight: 8 << 20, took: 12500 * time.Millisecond, group: &groupCounts{},
		samples: &samples{
			waiting: []point{{0.05, 17}}, budget: 8 << 20, source: "cgroup",
			pressed: &pressed{worst: pressure.High, signal: "psi_some", highest: map[string]float64{"psi_some": 42, "oom": 0}},
		},
	})

	second := *first
	second.title, second.scenario.name, second.limit, second.bytes = "Scenario other", "other", "no memory limit", 0
	chi := peers()[0]
	second.results = append(slices.Clip(first.results), result{
		name: chi.name, peer: &chi, limit: peerLimit{4, "as an example"}, end: "exit 0", peakFlight: 7 << 20, peakMemory: 61 << 20,
		outcomes: append(outcomes(596, answered, "", 8*time.Second), outcomes(4, refused, "status 429", 0)...),
		samples:  &samples{waiting: []point{{0.05, 3}}}, took: 20 * time.Second,
	})
	return []*storm{first, &second}
}

// exampleReport is of the first n of them.
func exampleReport(n int) *report {
	o := options{seed: 1}
	if n > 1 {
		o.against = "chi"
	}
	r := newReport(o, exampleStorms()[:n])
	for i := range r.Sections {
		r.Sections[i].Setting = "Each app: as an example" // else it names this machine
	}
	return r
}

func TestTable(t *testing.T) {
	for n, file := range []string{1: "table.golden", 2: "tables.golden"} {
		if n == 0 {
			continue
		}
		golden, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, exampleReport(n).writeTable(&b))
		assert.Equal(t, string(golden), b.String())
	}
	assert.Error(t, exampleReport(1).writeTable(fullDisk{}))
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestReport(t *testing.T) {
	for n := 1; n <= 2; n++ {
		r := exampleReport(n)
		file := filepath.Join(t.TempDir(), "report.html")
		require.NoError(t, r.writeHTML(file))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		page := string(text)
		for i, s := range r.Sections {
			for _, cells := range s.Rows {
				for _, cell := range cells {
					td := "<td>"
					if len(cell) > 14 { // it may break
						td = `<td class="words">`
					}
					assert.True(t, strings.Contains(page, td+html.EscapeString(cell)+"</td>"), cell)
				}
			}
			for _, id := range []string{"memory", "flight", "budget", "latency"} {
				assert.Contains(t, page, fmt.Sprintf(`id="%s-%d"`, id, i))
				assert.Contains(t, page, fmt.Sprintf(`draw(%q, at,`, id))
			}
		}
		assert.Equal(t, n > 1, strings.Contains(page, "<nav>"), "a way to each of several")
		assert.Contains(t, page, "Scenario &lt;bodies&gt;", "text is escaped")
		assert.Contains(t, page, "killed: out of memory after 3.6 s")
		assert.Contains(t, page, `"limit":268435456`)
		assert.Contains(t, page, `"died":3.6`)
		assert.Contains(t, page, `{"t":0.05,"v":17}`)
		assert.Contains(t, page, "var uPlot=function()")
		assert.Error(t, r.writeHTML(filepath.Join(file, "below-a-file")))
	}
}

// Each app has a color, which is one of its name.
func TestEveryAppHasAColor(t *testing.T) {
	for _, name := range append([]string{"bare", strings.ReplaceAll(lanesOff, " ", "-"), "headgate"}, strings.Split(peerNames(), ", ")...) {
		assert.Equal(t, 2, strings.Count(reportCSS, "--"+name+": #"), "%s, on light and on dark", name)
	}
}

// What comes of storms goes to all places that are asked for.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	var table bytes.Buffer
	require.NoError(t, publish(options{report: filepath.Join(dir, "r.html")}, exampleStorms(), &table))
	assert.Contains(t, table.String(), "Scenario other")
	assert.FileExists(t, filepath.Join(dir, "r.html"))
	assert.FileExists(t, filepath.Join(dir, "r.json"))
	require.NoError(t, publish(options{json: filepath.Join(dir, "alone.json")}, exampleStorms(), &table))
	assert.FileExists(t, filepath.Join(dir, "alone.json"))
	assert.NoFileExists(t, filepath.Join(dir, "alone.html"))

	require.ErrorContains(t, publish(options{report: filepath.Join(dir, "r.html", "x")}, exampleStorms(), &table), "-report: ")
	require.ErrorContains(t, publish(options{json: filepath.Join(dir, "r.html", "x")}, exampleStorms(), &table), "-json: ")
	require.ErrorContains(t, publish(options{}, exampleStorms(), fullDisk{}), "disk full")
}

// The page needs nothing but itself.
func TestReportLoadsNothing(t *testing.T) {
	page, err := exampleReport(2).html()
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
	assert.Equal(t, "4 (c)", counts{"c": 4}.cell())
	assert.Equal(t, "8 (c 4, a 2, b 2)", counts{"a": 2, "b": 2, "c": 4}.cell())
}
