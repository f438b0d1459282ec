package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

//go:embed assets/report.html
var reportHTML string

//go:embed assets/report.css
var reportCSS string

//go:embed assets/report.js
var reportJS string

// uPlot 1.6.32, MIT: see assets/uPlot.LICENSE.
//
//go:embed assets/uPlot.iife.min.js
var uplotJS string

//go:embed assets/uPlot.min.css
var uplotCSS string

// report is what the table and the page are made of.
type report struct {
	Title   string
	Setting string   // how the apps ran
	Summary []string // a sentence for each
	Heads   []string
	Rows    [][]string
	Notes   []string
	Bars    []bar
	Data    chartData
}

// bar is what became of all requests to one app.
type bar struct {
	Name  string
	Parts []part
}

type part struct {
	Kind    verdict
	Count   int
	Percent float64
}

// chartData is what the page's script draws, in bytes and seconds.
type chartData struct {
	Limit  int64    `json:"limit"`  // of memory, 0 = none
	Budget int64    `json:"budget"` // of headgate, 0 = unknown
	Series []series `json:"series"`
}

type series struct {
	Name    string  `json:"name"`
	Memory  []point `json:"memory"`
	Flight  []point `json:"flight"`
	Waiting []point `json:"waiting"`
	Latency []point `json:"latency"` // percent of all requests, by seconds
	Died    float64 `json:"died"`    // 0 = it did not
}

func newReport(s *storm, o options, results []result) *report {
	r := &report{Title: fmt.Sprintf("%s; %d requests, seed %d", s.title, len(s.calls), o.seed)}
	r.Setting = fmt.Sprintf("Each app: %s, GOMEMLIMIT %s; %d CPUs, %s/%s",
		s.limit, cmp.Or(variable(s.env, "GOMEMLIMIT"), "unset"), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	for _, c := range columns() {
		r.Heads = append(r.Heads, c[0])
		if c[1] != "" {
			r.Notes = append(r.Notes, c[0]+": "+c[1])
		}
	}
	r.Data.Limit = s.bytes
	for _, res := range results {
		r.add(res)
	}
	return r
}

// variable returns the value of a variable of an environment, "" when it is unset.
func variable(env []string, name string) string {
	for _, s := range env {
		if v, ok := strings.CutPrefix(s, name+"="); ok {
			return v
		}
	}
	return ""
}

func (r *report) add(res result) {
	w := summarise(res)
	r.Summary = append(r.Summary, w.sentence())
	r.Rows = append(r.Rows, w.cells())
	r.Bars = append(r.Bars, newBar(w))
	if w.small != "" {
		r.Notes = append(r.Notes, fmt.Sprintf("%s, bodies under %v: %s", w.name, gate.Size(smallBytes), w.small))
	}
	if len(w.lost) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s, lost: %s", w.name, w.lost))
	}
	if w.budget > 0 {
		r.Data.Budget = w.budget
		r.Notes = append(r.Notes, fmt.Sprintf("%s, budget: %s, source %s", w.name, mib(w.budget), res.samples.source))
	}
	r.Data.Series = append(r.Data.Series, series{
		Name: res.name, Memory: res.samples.memory, Flight: res.samples.flight, Waiting: res.samples.waiting,
		Latency: cumulative(latencies(res.outcomes, math.MaxInt64), len(res.outcomes)), Died: res.died.Seconds(),
	})
}

// sentence says the row in words.
func (w row) sentence() string {
	s := fmt.Sprintf("%s: %d of %d requests answered", w.name, w.answered, w.total)
	for _, c := range []struct {
		what verdict
		n    int
	}{{refused, w.refused.sum()}, {lost, w.lost.sum()}, {wrong, w.wrong.sum()}} {
		if c.n > 0 {
			s += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	if w.peakMemory > 0 {
		s += fmt.Sprintf("; at most %s of memory", mib(w.peakMemory))
	}
	return s + "; " + w.end + "."
}

func newBar(w row) bar {
	b := bar{Name: w.name}
	for _, p := range []part{
		{Kind: answered, Count: w.answered},
		{Kind: refused, Count: w.refused.sum()},
		{Kind: lost, Count: w.lost.sum()},
		{Kind: wrong, Count: w.wrong.sum()},
	} {
		if p.Count > 0 {
			p.Percent = 100 * float64(p.Count) / float64(w.total)
			b.Parts = append(b.Parts, p)
		}
	}
	return b
}

// cumulative says how many percent of total requests were answered within a time, at
// no more than some hundred times.
func cumulative(sorted []time.Duration, total int) []point {
	const most = 300
	step := max(len(sorted)/most, 1)
	var out []point
	for i := 0; i < len(sorted); i += step {
		out = append(out, point{sorted[i].Seconds(), 100 * float64(i+1) / float64(total)})
	}
	if n := len(sorted); n > 0 && (n-1)%step != 0 {
		out = append(out, point{sorted[n-1].Seconds(), 100 * float64(n) / float64(total)})
	}
	return out
}

// html renders the page, which needs nothing but itself.
func (r *report) html() ([]byte, error) {
	page, err := template.New("report").Parse(reportHTML)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = page.Execute(&b, struct {
		*report
		CSS       template.CSS
		UPlot, JS template.JS
	}{r, template.CSS(uplotCSS + reportCSS), template.JS(uplotJS), template.JS(reportJS)})
	return b.Bytes(), err
}

// publish writes the table, and the page to file unless that is "".
func (r *report) publish(stdout io.Writer, file string) error {
	if err := r.writeTable(stdout); err != nil || file == "" {
		return err
	}
	page, err := r.html()
	if err != nil {
		return fmt.Errorf("-report: %w", err)
	}
	if err := os.WriteFile(file, page, 0o644); err != nil {
		return fmt.Errorf("-report: %w", err)
	}
	return nil
}
