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
	"slices"
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

// report is what the tables and the page are made of.
type report struct {
	Sections []section
	Legends  []legend
}

// legend says what the columns of some tables mean.
type legend struct {
	Title string // the scenario that has them first
	Notes []string
}

// section is of one scenario.
type section struct {
	Title   string
	Setting string   // how the apps ran
	Summary []string // a sentence for each app
	Heads   []string // of the table
	Rows    [][]string
	Notes   []string
	Bars    []bar
	Charts  []chart
	Data    chartData
}

// chart is a place for one that the script draws.
type chart struct{ ID, Title, About string }

// bodyCharts and callCharts are those of storms of bodies and of calls to a back end.
func bodyCharts() []chart {
	return []chart{
		{"memory", "Memory of the app", "Resident set in MiB, by seconds."},
		{"flight", "Body bytes in flight", "MiB, by seconds. bare: sent and not over; the others: let in."},
		{"budget", "The budget, close up", "MiB let in (left), requests that wait at headgate (right)."},
		{"latency", "How soon requests were answered", "Percent of all requests, lost ones included, answered within a time."},
	}
}

func callCharts(flooded bool) []chart {
	chats := chart{"chat", "Chats", "Seconds that each took, answered or not, by when it began."}
	if flooded { // they begin at one moment
		chats = chart{"others", "How soon the others were answered", "Percent of the calls of the tenants with one each, failed ones included, answered within a time."}
	}
	return []chart{
		{"backend", "Calls at the back end", "By seconds, those included whose client has left."},
		{"queue", "The queue before it", "headgate: calls at the back end (left), calls that wait in their tenant's lane or for a slot (right)."},
		chats,
		{"latency", "How soon calls were answered", "Percent of all calls, failed ones included, answered within a time."},
	}
}

// bar is what became of all requests to one app.
type bar struct {
	Name  string
	Parts []part
}

type part struct {
	Kind    verdict
	Name    string // as the table has it
	Count   int
	Percent float64
}

// chartData is what the page's script draws, in bytes and seconds.
type chartData struct {
	Capacity int  `json:"capacity"` // of the back end, 0 = there is none
	Flooded  bool `json:"flooded"`  // a tenant sends many calls at once
	Shared   bool `json:"shared"`   // it is about the tenants' shares
	// Of storms of bodies.
	Limit  int64    `json:"limit"`  // of memory, 0 = none
	Budget int64    `json:"budget"` // of headgate, 0 = unknown
	Series []series `json:"series"`
}

type series struct {
	Name    string  `json:"name"`
	Memory  []point `json:"memory"`
	Flight  []point `json:"flight"`
	Waiting []point `json:"waiting"`
	AtBack  []point `json:"atBack"`  // calls at the back end
	Chat    []point `json:"chat"`    // seconds that each took
	Latency []point `json:"latency"` // percent of all requests, by seconds
	Others  []point `json:"others"`  // the same of the chats
	Shares  []point `json:"shares"`  // percent of its share that a tenant had, by the percent of tenants with no more
	Died    float64 `json:"died"`    // 0 = it did not
}

func newReport(o options, storms []*storm) *report {
	r := &report{}
	for _, s := range storms {
		columns := bodyColumns(o.against != "")
		if s.scenario.columns != nil {
			columns = s.scenario.columns(o.against != "")
		}
		sec := newSection(o, s, columns)
		if !slices.ContainsFunc(r.Sections, func(other section) bool { return slices.Equal(other.Heads, sec.Heads) }) {
			r.Legends = append(r.Legends, newLegend(s, columns))
		}
		r.Sections = append(r.Sections, sec)
	}
	return r
}

func newLegend(s *storm, columns []column) legend {
	l := legend{Title: "Scenario " + s.scenario.name}
	for _, c := range columns {
		if c.note != "" {
			l.Notes = append(l.Notes, c.head+": "+c.note)
		}
	}
	return l
}

func newSection(o options, s *storm, columns []column) section {
	sec := section{
		Title: fmt.Sprintf("%s; %d requests, seed %d", s.title, requests(s.calls), o.seed),
		Setting: fmt.Sprintf("Each app: %s, GOMEMLIMIT %s; %d CPUs, %s/%s",
			s.limit, cmp.Or(variable(s.env, "GOMEMLIMIT"), "unset"), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
	}
	sec.Data.Shared = s.scenario.virtual
	sec.Data.Limit, sec.Charts = s.bytes, bodyCharts()
	if b := s.scenario.backEnd; b != nil {
		sec.Data.Capacity, sec.Data.Flooded = b.capacity, s.flooded()
		sec.Charts = callCharts(sec.Data.Flooded)
		if o.against != "" {
			sec.Notes = append(sec.Notes, "other libraries: not played, they limit what comes in, and this is about calls to a back end")
		}
	}
	if s.scenario.virtual {
		sec.Setting, sec.Charts = s.shares(), shareCharts()
	}
	for _, c := range columns {
		sec.Heads = append(sec.Heads, c.head)
	}
	for _, res := range s.results {
		w := summarise(res)
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.cell(w))
		}
		sec.Rows = append(sec.Rows, cells)
		sec.add(s, res, w)
	}
	return sec
}

// flooded reports whether a tenant sends many calls at once.
func (s *storm) flooded() bool {
	return slices.ContainsFunc(s.calls, func(k call) bool { return k.kind == flood })
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

// add adds all of a result but its row.
func (sec *section) add(s *storm, res result, w row) {
	sec.Summary = append(sec.Summary, w.sentence())
	sec.Bars = append(sec.Bars, newBar(w))
	if w.peer != nil {
		sec.Notes = append(sec.Notes, w.peer.notes(s, w.limit)...)
	}
	if w.small.n > 0 {
		sec.Notes = append(sec.Notes, fmt.Sprintf("%s, bodies under %v: p50 %s, p99 %s", w.name, gate.Size(smallBytes), seconds(w.small.p50), seconds(w.small.p99)))
	}
	if len(w.lost) > 0 {
		sec.Notes = append(sec.Notes, fmt.Sprintf("%s, lost: %s", w.name, w.lost))
	}
	if w.budget > 0 {
		sec.Data.Budget = w.budget
		sec.Notes = append(sec.Notes, fmt.Sprintf("%s, budget: %s, source %s", w.name, mib(w.budget), res.samples.source))
	}
	single := only(res.outcomes, chat)
	sec.Data.Series = append(sec.Data.Series, series{
		Name: res.name, Memory: res.samples.memory, Flight: res.samples.flight, Waiting: res.samples.waiting,
		AtBack: res.samples.atBack, Chat: chats(res.outcomes),
		Latency: cumulative(latencies(res.outcomes, math.MaxInt64), len(res.outcomes)), Died: res.died.Seconds(),
		Others: cumulative(latencies(single, math.MaxInt64), len(single)), Shares: w.fair.ranks(),
	})
}

// sentence says the row in words.
func (w row) sentence() string {
	if w.fair != nil {
		return w.shareSentence()
	}
	if w.back != nil {
		return fmt.Sprintf("%s: %d of %d calls answered, %d failed; the back end did %.2f times the work that they are, with up to %d calls at once; %s.",
			w.name, w.answered, w.total, w.failed().sum(), w.back.ratio(), w.back.did.MaxConcurrent, w.end)
	}
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
			p.Name = string(p.Kind)
			if p.Kind == wrong && w.back != nil {
				p.Name = "failed"
			}
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
	data := make([]chartData, 0, len(r.Sections))
	for _, s := range r.Sections {
		data = append(data, s.Data)
	}
	var b bytes.Buffer
	err = page.Execute(&b, struct {
		*report
		Data      []chartData
		CSS       template.CSS
		UPlot, JS template.JS
	}{r, data, template.CSS(uplotCSS + reportCSS), template.JS(uplotJS), template.JS(reportJS)})
	return b.Bytes(), err
}

// writeHTML writes the page to file.
func (r *report) writeHTML(file string) error {
	page, err := r.html()
	if err != nil {
		return err
	}
	return os.WriteFile(file, page, 0o644)
}

// publish writes what came of the storms: the table to stdout, and the page and the
// JSON to the files that o names.
func publish(o options, storms []*storm, stdout io.Writer) error {
	r := newReport(o, storms)
	if err := r.writeTable(stdout); err != nil {
		return err
	}
	if o.report != "" {
		if err := r.writeHTML(o.report); err != nil {
			return fmt.Errorf("-report: %w", err)
		}
	}
	if file := o.jsonFile(); file != "" {
		if err := writeJSON(file, newResults(o, storms)); err != nil {
			return fmt.Errorf("-json: %w", err)
		}
	}
	return nil
}
