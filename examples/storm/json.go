package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/headgate-go/headgate/core/pressure"
)

// jsonFormat is the version of the JSON. It grows when a field goes or changes its
// meaning, not when one is added.
const jsonFormat = 1

// results is the JSON of a report, which README.md describes. What does not apply or
// is not known is null, never 0; counts are 0 where there is nothing to count. Names
// end with their unit: _bytes, _s for seconds.
type results struct {
	Format         int              `json:"format"`
	Seed           uint64           `json:"seed"`
	OS             string           `json:"os"`
	Arch           string           `json:"arch"`
	CPUs           int              `json:"cpus"`
	GoMemLimit     *string          `json:"gomemlimit"` // of the apps' environment
	SmallBodyBytes int64            `json:"small_body_bytes"`
	Scenarios      []scenarioResult `json:"scenarios"`
}

// scenarioResult is one scenario against all apps.
type scenarioResult struct {
	Name             string      `json:"name"`
	Title            string      `json:"title"`
	Trace            *string     `json:"trace"` // the base name of the file
	Requests         int         `json:"requests"`
	DurationS        float64     `json:"duration_s"` // how long requests arrive
	MemoryLimitBytes *int64      `json:"memory_limit_bytes"`
	MemoryLimit      string      `json:"memory_limit"` // for people
	Apps             []appResult `json:"apps"`
}

// appResult is a row of the table and the lines of the charts.
type appResult struct {
	App     string  `json:"app"`     // "bare" or "lanes off", "headgate", or the library
	Library *string `json:"library"` // what of another library is used

	LimitBytes    *int64   `json:"limit_bytes"`
	LimitSource   *string  `json:"limit_source"` // where headgate has its budget from
	LimitRequests *int     `json:"limit_requests"`
	LimitWhy      *string  `json:"limit_why"` // why so many requests, for people
	Lacks         []string `json:"lacks"`

	Answered        int    `json:"answered"`
	Refused         int    `json:"refused"`
	RefusedByReason counts `json:"refused_by_reason"`
	Lost            int    `json:"lost"`
	LostByCause     counts `json:"lost_by_cause"`
	Wrong           int    `json:"wrong"`
	WrongByCause    counts `json:"wrong_by_cause"`
	ProperRefusals  *int   `json:"proper_refusals"` // of the refused, 413 or 503 with Retry-After; of bodies

	PeakInflightBytes int64         `json:"peak_inflight_bytes"`
	PeakMemoryBytes   *int64        `json:"peak_memory_bytes"`
	Cgroup            *cgroupJSON   `json:"cgroup"`
	Pressure          *pressureJSON `json:"pressure"`
	Latency           *latencyTimes `json:"latency"`
	SmallLatency      *latencyTimes `json:"small_latency"`

	BackEnd      *backEndJSON  `json:"back_end"` // of scenarios that have one
	ChatWait     *latencyTimes `json:"chat_wait"`
	FloodLatency *latencyTimes `json:"flood_latency"`
	Fairness     *fairnessJSON `json:"fairness"` // of scenarios about shares

	TookS      float64  `json:"took_s"` // from the first request to the end of the last
	End        string   `json:"end"`
	DiedAfterS *float64 `json:"died_after_s"`

	Series appSeries `json:"series"`
}

// cgroupJSON is what the app's cgroup counted.
type cgroupJSON struct {
	OOMKills  int64  `json:"oom_kills"`
	PeakBytes *int64 `json:"peak_bytes"`
}

// pressureJSON is how close to its memory limit the app was, as it says.
type pressureJSON struct {
	Worst           pressure.Severity  `json:"worst"`
	Signal          *string            `json:"signal"`            // that raised it
	HighestBySignal map[string]float64 `json:"highest_by_signal"` // of those that were known
}

// backEndJSON is what a back end has done for an app.
type backEndJSON struct {
	Capacity      int     `json:"capacity"`
	ServiceS      float64 `json:"service_s"`
	Calls         int64   `json:"calls"` // that it has seen
	Retries       int64   `json:"retries"`
	MaxConcurrent int     `json:"max_concurrent"`
	WorkS         float64 `json:"work_s"`
	WastedS       float64 `json:"wasted_s"` // of that work, for callers that had left
	IdealWorkS    float64 `json:"ideal_work_s"`
	WorkRatio     float64 `json:"work_ratio"`
}

// latencyTimes are of the answered, from when a request was due to the end of its
// answer.
type latencyTimes struct {
	P50S float64 `json:"p50_s"`
	P90S float64 `json:"p90_s"`
	P99S float64 `json:"p99_s"`
	MaxS float64 `json:"max_s"`
}

// appSeries are values v at times t, in seconds from the first request. In ChatS v is
// how long a chat took that began at t. In the last one t is a latency, and v how many
// percent of all requests were answered within it.
type appSeries struct {
	MemoryBytes     []point `json:"memory_bytes"`
	InflightBytes   []point `json:"inflight_bytes"`
	Waiting         []point `json:"waiting"`
	BackEndCalls    []point `json:"back_end_calls"`
	ChatS           []point `json:"chat_s"`
	AnsweredPercent []point `json:"answered_percent"`
}

func newResults(o options, storms []*storm) *results {
	r := &results{
		Format: jsonFormat, Seed: o.seed, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		SmallBodyBytes: smallBytes, Scenarios: []scenarioResult{},
	}
	if len(storms) > 0 { // it is the same for all
		r.GoMemLimit = known(variable(storms[0].env, "GOMEMLIMIT"))
	}
	for _, s := range storms {
		sc := scenarioResult{
			Name: s.scenario.name, Title: s.title, Trace: known(s.trace), Requests: requests(s.calls), DurationS: s.length.Seconds(),
			MemoryLimitBytes: known(s.bytes), MemoryLimit: s.limit, Apps: []appResult{},
		}
		for _, res := range s.results {
			sc.Apps = append(sc.Apps, newAppResult(res))
		}
		r.Scenarios = append(r.Scenarios, sc)
	}
	return r
}

func newAppResult(res result) appResult {
	w := summarise(res)
	a := appResult{
		App: w.name, LimitBytes: known(w.budget), LimitSource: known(res.samples.source), Lacks: []string{},
		Answered: w.answered, Refused: w.refused.sum(), RefusedByReason: w.refused,
		Lost: w.lost.sum(), LostByCause: w.lost, Wrong: w.wrong.sum(), WrongByCause: w.wrong,
		PeakInflightBytes: w.peakFlight, PeakMemoryBytes: known(w.peakMemory), Latency: w.all.times(), SmallLatency: w.small.times(),
		TookS: res.took.Seconds(), End: res.end, DiedAfterS: known(res.died.Seconds()),
		Series: appSeries{
			MemoryBytes: list(res.samples.memory), InflightBytes: list(res.samples.flight), Waiting: list(res.samples.waiting),
			BackEndCalls: list(res.samples.atBack), ChatS: list(chats(res.outcomes)),
			AnsweredPercent: list(cumulative(latencies(res.outcomes, math.MaxInt64), len(res.outcomes))),
		},
	}
	if w.back == nil {
		n := w.proper.sum()
		a.ProperRefusals = &n
	}
	if g := w.group; g != nil {
		a.Cgroup = &cgroupJSON{OOMKills: g.kills, PeakBytes: known(g.peak)}
	}
	if p := w.pressed; p != nil {
		a.Pressure = &pressureJSON{Worst: p.worst, Signal: known(p.signal), HighestBySignal: p.highest}
	}
	if b := w.back; b != nil {
		a.ChatWait, a.FloodLatency = w.chat.times(), w.flood.times()
		a.BackEnd = &backEndJSON{
			Capacity: b.capacity, ServiceS: b.service.Seconds(), Calls: b.did.Started + b.did.Refused, Retries: b.retries(w.refused.sum()),
			MaxConcurrent: b.did.MaxConcurrent, WorkS: b.work().Seconds(), WastedS: float64(b.did.WastedMS) / 1000,
			IdealWorkS: b.ideal().Seconds(), WorkRatio: b.ratio(),
		}
	}
	a.Fairness = w.fair.json()
	if w.peer != nil {
		a.Library, a.Lacks = known(w.peer.what), w.peer.lacks
		a.LimitRequests, a.LimitWhy = known(w.limit.requests), known(w.limit.why)
	}
	return a
}

// times is nil when nothing was answered.
func (l latency) times() *latencyTimes {
	if l.n == 0 {
		return nil
	}
	return &latencyTimes{l.p50.Seconds(), l.p90.Seconds(), l.p99.Seconds(), l.max.Seconds()}
}

// known makes null of a zero that means unknown.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// list makes [] of nothing.
func list(points []point) []point {
	if points == nil {
		return []point{}
	}
	return points
}

// jsonFile is where the JSON goes, "" = nowhere: to the file of its own, or beside the
// page under its name.
func (o options) jsonFile() string {
	if o.json != "" || o.report == "" {
		return o.json
	}
	return strings.TrimSuffix(o.report, filepath.Ext(o.report)) + ".json"
}

func writeJSON(file string, r *results) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
