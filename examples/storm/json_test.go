package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The JSON of made-up results, byte for byte but for the line breaks: programs read it.
func TestJSON(t *testing.T) {
	golden, err := os.ReadFile("testdata/results.golden.json")
	require.NoError(t, err)
	storms := exampleStorms()
	storms[0].env = []string{"GOMEMLIMIT=200MiB"}
	storms[1].trace = "azure.csv"
	r := newResults(options{seed: 7}, storms)
	r.OS, r.Arch, r.CPUs = "linux", "amd64", 2
	for _, sc := range r.Scenarios {
		for i := range sc.Apps { // one point says as much as hundreds
			sc.Apps[i].Series.AnsweredPercent = sc.Apps[i].Series.AnsweredPercent[:1]
		}
	}
	file := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, writeJSON(file, r))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.JSONEq(t, string(golden), string(text))

	var names map[string]any
	require.NoError(t, json.Unmarshal(text, &names))
	snakeCase(t, names)
	assert.Error(t, writeJSON(filepath.Join(file, "below-a-file"), r))
}

// snakeCase checks the names of all fields; the reasons and causes that are counted
// are no fields.
func snakeCase(t *testing.T, v any) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			snakeCase(t, e)
		}
	case map[string]any:
		for name, e := range v {
			assert.Regexp(t, `^[a-z][a-z0-9]*(_[a-z0-9]+)*$`, name)
			if !strings.Contains(name, "_by_") {
				snakeCase(t, e)
			}
		}
	}
}

// What is not known is null and not 0, and what there is none of is empty and not null.
func TestJSONOfNothing(t *testing.T) {
	text, err := json.Marshal(newAppResult(result{name: "bare", samples: &samples{}}))
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"app": "bare", "library": null, "limit_bytes": null, "limit_source": null, "limit_requests": null, "limit_why": null, "lacks": [],
		"answered": 0, "refused": 0, "refused_by_reason": {}, "lost": 0, "lost_by_cause": {}, "wrong": 0, "wrong_by_cause": {}, "proper_refusals": 0,
		"peak_inflight_bytes": 0, "peak_memory_bytes": null, "cgroup": null, "pressure": null, "latency": null, "small_latency": null, "back_end": null, "chat_wait": null, "flood_latency": null, "fairness": null,
		"took_s": 0, "end": "", "died_after_s": null,
		"series": {"memory_bytes": [], "inflight_bytes": [], "waiting": [], "back_end_calls": [], "chat_s": [], "answered_percent": []}
	}`, string(text))
	text, err = json.Marshal(newResults(options{}, nil))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gomemlimit":null`)
	assert.Contains(t, string(text), `"scenarios":[]`)
}

func TestWhereTheJSONGoes(t *testing.T) {
	for _, c := range []struct{ report, json, want string }{
		{"", "", ""},
		{"dir/report.html", "", "dir/report.json"},
		{"report", "", "report.json"},
		{"v1.2/report", "", "v1.2/report.json"},
		{"report.html", "other.json", "other.json"},
		{"", "alone.json", "alone.json"},
	} {
		o := options{report: c.report, json: c.json}
		assert.Equal(t, c.want, o.jsonFile())
	}
}

// Percentiles in the JSON are those of the table.
func TestLatencyTimes(t *testing.T) {
	var all []outcome
	for i := range 100 {
		all = append(all, outcome{verdict: answered, took: time.Duration(100-i) * time.Second, size: int64(i%2) << 20})
	}
	l := latencyOf(all, 1<<40)
	assert.Equal(t, &latencyTimes{50, 90, 99, 100}, l.times())
	assert.Equal(t, 50, latencyOf(all, smallBytes).n)
	assert.Equal(t, "50.0 s", l.cell(l.p50))
	assert.Nil(t, latency{}.times())
	assert.Equal(t, "-", latency{}.cell(0))
}
