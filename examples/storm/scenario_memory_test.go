package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
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

const (
	stormMemory = 256 << 20 // the app's limit
	stormBudget = 8 << 20   // of bodies, that headgate derives from it
)

// The bars of the memory storm, against the real gateway in a real cgroup of 256 MiB: 200
// bodies of 2 MiB at once kill the app as it is. With headgate it lives, everybody is
// answered, and what its collector leaves for later is not taken for pressure.
//
// Where no cgroup can be made it says so and why, in its log and by a subtest that is
// skipped. GOMEMLIMIT then stands for the limit, with RLIMIT_DATA where the system has it,
// and all but the kernel's counts is asserted.
func TestMemoryStorm(t *testing.T) {
	long(t, "builds the gateway and plays storms of some 20 s")
	o, err := parse(nil, io.Discard)
	require.NoError(t, err)
	missing := cgroupMissing(t)
	if missing != nil {
		t.Logf("NOT IN A CGROUP: %v; under GOMEMLIMIT instead, without the kernel's own counts", missing)
	}
	m := &memoryTest{o: o, cgroup: missing == nil, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	m.apps, err = variants(ctx, progress{}, m.dir, filepath.Join(m.dir, "headgate.yaml"), nil)
	require.NoError(t, err)

	with := m.play(ctx, t, "headgate", 100*time.Millisecond)
	survived(t, with)
	bare := m.play(ctx, t, "bare", 2*time.Second)
	assert.Empty(t, bare.refused, "nobody is there to refuse")
	if m.limited {
		assert.Contains(t, bare.end, "out of memory")
		assert.Less(t, bare.answered, bare.total)
		assert.Positive(t, bare.lost.sum())
	}
	t.Run("by the cgroup's own counts", func(t *testing.T) {
		if missing != nil {
			t.Skipf("needs the right to make a cgroup with the memory controller: %v", missing)
		}
		assert.Zero(t, with.group.kills, "oom_kill")
		assert.Less(t, with.group.peak, int64(stormMemory))
		assert.Positive(t, bare.group.kills, "oom_kill")

		// The collector has no reason to work before the heap is at 4/5 of the cgroup.
		lazy := m.play(ctx, t, "headgate", 100*time.Millisecond, "GOGC=off", "GOMEMLIMIT=205MiB")
		survived(t, lazy)
		assert.Zero(t, lazy.group.kills, "oom_kill")
		if lazy.group.peak > 0 { // there are kernels that do not tell
			assert.Greater(t, lazy.group.peak, int64(stormMemory)*7/10, "there was garbage to be taken for pressure")
		}
		assert.Less(t, lazy.pressed.highest["working_set"], 0.5, "and it was not")
		assert.Equal(t, "normal", lazy.pressureCell())
	})
	m.publish(t)
}

// cgroupMissing says why no cgroup with a memory limit can be made, nil where one can.
func cgroupMissing(t *testing.T) error {
	t.Helper()
	limit, err := newMemoryLimit(t.Context(), stormMemory, limitCgroup)
	if err != nil {
		return err
	}
	limit.close()
	return nil
}

// memoryTest plays memory storms, each against one app.
type memoryTest struct {
	o       options
	dir     string
	apps    []variant
	cgroup  bool // apps run in one
	limited bool // something enforced the limit of the last one
	storms  []*storm
}

// play plays one, in an environment that says of Go's memory what env says, and nothing else.
func (m *memoryTest) play(ctx context.Context, t *testing.T, app string, hold time.Duration, env ...string) row {
	t.Helper()
	s, err := prepare(m.o, memoryStormAt(hold))
	require.NoError(t, err)
	// A client that gets no processor time for a while is not what this is about.
	s.scenario.config += "  min_body_rate_waiting: 0\n"
	s.file = filepath.Join(m.dir, "headgate.yaml")
	s.env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOMEMLIMIT=") || strings.HasPrefix(v, "GOGC=")
	})
	if !m.cgroup && len(env) == 0 {
		env = []string{"GOMEMLIMIT=256MiB"}
	}
	s.env = append(s.env, env...)
	s.pool.complete(rand.New(rand.NewPCG(m.o.seed, 2)), s.calls)
	i := slices.IndexFunc(m.apps, func(v variant) bool { return v.name == app })
	require.NoError(t, s.all(ctx, m.o, progress{}, m.apps[i:i+1]))
	m.limited = s.bytes > 0
	m.storms = append(m.storms, s)
	w := summarise(s.results[0])
	t.Logf("%s, held for %v, %v: %s; %d of %d answered, refused: %s, lost: %s; %s; %s; cgroup: %+v; took %v",
		app, hold, env, s.limit, w.answered, w.total, w.refused.cell(), w.lost.cell(), w.flightCell(), w.memoryCell(), w.group, s.results[0].took.Round(time.Millisecond))
	if w.pressed != nil {
		t.Logf("%s, pressure: %s, highest: %v", app, w.pressureCell(), w.pressed.highest)
	}
	assert.Equal(t, memoryBodies, w.total)
	return w
}

// survived holds for a storm against the app with headgate.
func survived(t *testing.T, w row) {
	t.Helper()
	assert.Equal(t, "exit 0", w.end)
	assert.Empty(t, w.lost, "every request is answered")
	assert.Empty(t, w.improper(), "with 200, 413, or 503 and Retry-After")
	assert.Equal(t, w.total, w.answered+w.proper.sum())
	assert.GreaterOrEqual(t, w.answered, 150)
	assert.Equal(t, int64(stormBudget), w.budget)
	assert.GreaterOrEqual(t, 10*w.peakFlight, 9*w.budget, "the budget is used")
	assert.LessOrEqual(t, w.peakFlight, w.budget)
	require.NotNil(t, w.pressed)
	// PSI may be the whole machine's, and that of others.
	if worst := w.pressed; worst.worst == pressure.Critical {
		assert.Contains(t, worst.signal, "psi", "nothing of the app's own is critical")
	} else {
		assert.Zero(t, w.refused["resource_pressure"])
	}
	for _, own := range []string{"live_heap", "working_set"} {
		assert.Less(t, w.pressed.highest[own], 0.85, own)
	}
}

// publish writes all reports of what was played.
func (m *memoryTest) publish(t *testing.T) {
	t.Helper()
	m.o.report = filepath.Join(m.dir, "report.html")
	var table bytes.Buffer
	require.NoError(t, publish(m.o, m.storms, &table))
	t.Logf("\n%s", &table)
	page, err := os.ReadFile(m.o.report)
	require.NoError(t, err)
	assert.Contains(t, string(page), "<th>worst pressure</th>")
	text, err := os.ReadFile(m.o.jsonFile())
	require.NoError(t, err)
	var r results
	require.NoError(t, json.Unmarshal(text, &r))
	assert.Equal(t, *newResults(m.o, m.storms), r, "nothing is lost on the way to the file")
}

// The columns of made-up results: what is no 413 and no 503 with Retry-After is apart.
func TestMemoryColumns(t *testing.T) {
	cells := func(peers bool, res result) map[string]string {
		row, w := map[string]string{}, summarise(res)
		for _, c := range memoryColumns(peers) {
			row[c.head] = c.cell(w)
		}
		return row
	}
	s := exampleStorms()[1]
	assert.Equal(t, map[string]string{
		"app": "bare", "answered": "160 of 600", "413, or 503 with Retry-After": "0", "other answers": "0", "lost": "440", "peak in flight": "402.5 MiB",
		"peak memory": "256 MiB", "kills": "1", "worst pressure": "-", "end": "killed: out of memory after 3.6 s",
	}, cells(false, s.results[0]))
	with := cells(true, s.results[1])
	assert.Equal(t, "9 (queue_timeout)", with["413, or 503 with Retry-After"])
	assert.Equal(t, "6 (admission_busy 5, status 500 1)", with["other answers"])
	assert.Equal(t, "8 MiB of 8 MiB (100 %)", with["peak in flight"])
	assert.Equal(t, "0", with["kills"])
	assert.Equal(t, "high (psi_some)", with["worst pressure"])
	chi := cells(true, s.results[2])
	assert.Equal(t, "n/a", chi["kills"])
	assert.Equal(t, "4 (status 429)", chi["other answers"])
	assert.Equal(t, "4 requests", chi["limit"])

	calm := s.results[1]
	calm.samples.pressed = calm.samples.pressed.see(nil)
	assert.Equal(t, "high (psi_some)", cells(false, calm)["worst pressure"], "what is not heard changes nothing")
	calm.samples.pressed = (*pressed)(nil).see(&pressure.Snapshot{})
	assert.Equal(t, "normal", cells(false, calm)["worst pressure"])
}

// The worst and the highest count, not the last.
func TestPressed(t *testing.T) {
	reading := func(v float64) []pressure.Signal {
		return []pressure.Signal{{Name: "live_heap", Value: &v}, {Name: "psi_full"}}
	}
	var p *pressed
	assert.Nil(t, p.see(nil))
	for _, s := range []pressure.Snapshot{
		{Signals: reading(0.5)},
		{Severity: pressure.Critical, Signal: "live_heap", Signals: reading(0.95)},
		{Severity: pressure.High, Signal: "oom", Signals: reading(0.7)},
	} {
		p = p.see(&s)
	}
	assert.Equal(t, &pressed{pressure.Critical, "live_heap", map[string]float64{"live_heap": 0.95}}, p, "what is unknown is not 0")
}

func TestTellsWhen(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string
		want   bool
	}{
		{413, "", true},
		{503, "1", true},
		{503, "", false},
		{503, "0", false},
		{503, "-1", false},
		{503, "soon", false},
		{408, "", false},
		{429, "1", false},
		{200, "1", false},
	} {
		r := &http.Response{StatusCode: c.status, Header: http.Header{}}
		r.Header.Set("Retry-After", c.after)
		assert.Equal(t, c.want, tellsWhen(r), c)
	}
}

// All at one moment, and again after a while where -duration asks for more.
func TestMemoryPlan(t *testing.T) {
	sc := memoryStorm()
	for length, want := range map[time.Duration]int{0: 200, 14 * time.Second: 200, 15 * time.Second: 400} {
		calls := sc.plan(nil, length)
		assert.Len(t, calls, want)
		for i, k := range calls {
			assert.Equal(t, call{at: time.Duration(i/200) * 15 * time.Second, hold: memoryHold, size: 2 << 20}, k)
		}
	}
	s, err := prepare(options{}, sc)
	require.NoError(t, err)
	assert.Equal(t, "Scenario memory: 200 bodies of 2 MiB at once, each held for 500ms", s.title)
	assert.Contains(t, sc.config, "queue_timeout: "+sc.wait.String())
}
