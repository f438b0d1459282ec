package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// traceFile names a file of arrival laws that the tests play in place of made-up ones.
const traceFile = "STORM_TEST_TRACE"

// anyTrace returns a file of arrival laws: the one that the environment names, or one made up,
// and says which.
//
// The made-up one is like the busiest windows of what ServeGen has published of the tenants of
// a large model: fifty tenants, one of which makes 80 % of the load and calls nearly at
// random, and below it rates from a few percent down to a few calls in five minutes, some of
// them steady and some of them in bursts. It has an eighth of the calls.
func anyTrace(t *testing.T) string {
	t.Helper()
	if file := os.Getenv(traceFile); file != "" {
		t.Logf("the trace is that of %s", traceFile)
		return file
	}
	t.Logf("the trace is made up; %s may name one", traceFile)
	var b strings.Builder
	b.WriteString("tenant,window_start_s,rate_per_s,cv,family,p1,p2\n")
	law := func(tenant, start int, rate float64, family string, shape float64) {
		fmt.Fprintf(&b, "%d,%d,%g,1,%s,%g,1\n", tenant, start, rate, family, shape)
	}
	laws := []struct {
		family string
		shape  float64
	}{{"Gamma", 0.9}, {"Weibull", 0.6}, {"Gamma", 1}, {"Weibull", 0.38}, {"Gamma", 0.4}, {"Gamma", 2.5}, {"Gamma", 20}, {"Gamma", 0.13}}
	law(0, 600, 58, "Gamma", 0.77)
	for i := range 49 {
		l := laws[i%len(laws)]
		law(i+1, 600, 2.2*math.Pow(0.02/2.2, float64(i)/48), l.family, l.shape)
	}
	// Busier, but one tenant short; as many, but not as busy.
	for i := range 49 {
		law(i, 1200, 3, "Gamma", 1)
		law(i, 1800, 1, "Gamma", 1)
	}
	law(49, 1800, 1, "Gamma", 1)
	file := filepath.Join(t.TempDir(), "tenants.csv")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	return file
}

// planned is the storm of a trace.
func planned(t *testing.T, file string, args ...string) (options, *storm) {
	t.Helper()
	o, err := parse(append([]string{"-scenario", "trace", "-trace", file}, args...), io.Discard)
	require.NoError(t, err)
	s, err := prepare(o, traceStorm())
	require.NoError(t, err)
	return o, s
}

// The bar: at 70 % of what they want, each tenant has at least 0.95 of its max-min share with
// the lanes, and about 0.70 where all stand in one line. Both do the same work.
func TestTraceShares(t *testing.T) {
	file := anyTrace(t)
	for _, seed := range []string{"1", "2", "3", "4", "5"} {
		_, s := planned(t, file, "-seed", seed)
		require.NoError(t, s.simulate(t.Context(), progress{}))
		off, with := s.results[0].fair, s.results[1].fair
		t.Logf("seed %s, %d calls of %d tenants, %d slots: worst %.3f, median %.3f first come first served; worst %.3f, median %.3f with lanes",
			seed, len(s.calls), len(with.tenants), s.scenario.backEnd.capacity, off.worst(), off.median(), with.worst(), with.median())
		for i, f := range []*fairness{off, with} {
			w := summarise(s.results[i])
			assert.Equal(t, w.total, w.answered+w.lost.sum(), "%v", w.refused)
			assert.Greater(t, f.served.Seconds(), 0.98*f.room.Seconds(), "the slots are used")
			assert.LessOrEqual(t, f.served, f.room)
			assert.InDelta(t, traceRoom, f.room.Seconds()/f.demand.Seconds(), 0.01)
		}
		assert.GreaterOrEqual(t, len(with.tenants), traceTenants*9/10)
		assert.GreaterOrEqual(t, with.worst(), shareBar)
		assert.Zero(t, with.below())
		assert.Equal(t, s.scenario.backEnd.capacity, s.results[1].back.did.MaxConcurrent)
		assert.Less(t, off.worst(), 0.8)
		assert.InDelta(t, 0.7, off.median(), 0.05)
		assert.Greater(t, off.below(), len(off.tenants)/2)
	}
}

// The same in a bubble, where everything waits by itself and the clock of the gate is that
// of the calls: each tenant has what it has in virtual time.
func TestTraceSharesInABubble(t *testing.T) {
	_, s := planned(t, anyTrace(t), "-duration", "100s")
	require.NoError(t, s.simulate(t.Context(), progress{}))
	slots := s.scenario.backEnd.capacity
	for i, mode := range []gate.Mode{gate.Off, gate.Enforce} {
		var starts []time.Duration
		synctest.Test(t, func(t *testing.T) { starts = inBubble(t, s, slots, mode) })
		got, want := measure(s.calls, starts, slots, s.length), s.results[i].fair
		t.Logf("%s: worst %.4f and %.4f, median %.4f and %.4f, %.1f s and %.1f s served",
			s.results[i].name, got.worst(), want.worst(), got.median(), want.median(), got.served.Seconds(), want.served.Seconds())
		assert.InEpsilon(t, want.served.Seconds(), got.served.Seconds(), 0.002)
		assert.InDelta(t, want.worst(), got.worst(), 0.01)
		assert.InDelta(t, want.median(), got.median(), 0.01)
		assert.InDelta(t, want.largest(), got.largest(), 0.01)
		if mode == gate.Enforce {
			assert.GreaterOrEqual(t, got.worst(), shareBar)
			assert.InDelta(t, want.waits.p99.Seconds(), got.waits.p99.Seconds(), 0.1, "goroutines of one moment run in any order")
		}
	}
}

// inBubble plays a storm with a goroutine for each call, and returns when each started.
func inBubble(t *testing.T, s *storm, slots int, mode gate.Mode) []time.Duration {
	ln, err := lanes.New(traceLanes(mode, slots, len(s.calls)))
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// A deadline is another thing: a gate starts nobody who cannot be done by then.
	time.AfterFunc(s.length, cancel)
	starts := make([]time.Duration, len(s.calls))
	line := make(chan struct{}, slots) // who waits to send goes in the order of coming
	begin := time.Now()
	var wg sync.WaitGroup
	for i, k := range s.calls {
		time.Sleep(k.at - time.Since(begin))
		wg.Go(func() {
			starts[i] = notStarted
			lease, err := ln.Acquire(ctx, gate.Request{Flow: k.key, Cost: 1})
			if err != nil {
				return
			}
			defer lease.Release()
			select {
			case line <- struct{}{}:
			case <-ctx.Done():
				return
			}
			starts[i] = time.Since(begin)
			time.Sleep(k.hold)
			<-line
		})
	}
	wg.Wait()
	return starts
}

// With the default bounds and nothing else, most of what the largest tenant sends beyond its
// share is refused, the others have theirs all the same, and a refused call is not served.
func TestTraceWithShortQueues(t *testing.T) {
	_, s := planned(t, anyTrace(t), "-duration", "60s")
	slots := s.scenario.backEnd.capacity
	c := traceLanes(gate.Enforce, slots, len(s.calls))
	c.MaxQueueCount, c.MaxQueueCost = lanes.DefaultConfig().MaxQueueCount, lanes.DefaultConfig().MaxQueueCost
	ln, err := lanes.New(c)
	require.NoError(t, err)
	v := &virtual{gate: ln, limit: slots, slots: slots, calls: s.calls}
	require.NoError(t, v.play(t.Context(), s.length, func(int, int) {}))
	w, f := summarise(result{outcomes: v.outcomes()}), measure(s.calls, v.starts, slots, s.length)
	t.Logf("%d of %d started, refused: %s; worst %.3f, median %.3f, largest %.3f", w.answered, w.total, w.refused.cell(), f.worst(), f.median(), f.largest())
	assert.Equal(t, []int{w.total, f.left}, []int{w.answered + w.refused.sum() + w.lost.sum(), w.refused.sum() + w.lost.sum()})
	assert.Positive(t, w.refused[string(gate.TenantQueueFull)])
	assert.GreaterOrEqual(t, f.median(), 0.99)
	assert.GreaterOrEqual(t, f.largest(), shareBar)
}

// A gate that is closed refuses, and one that lets in more or fewer than it should is found out.
func TestVirtualGates(t *testing.T) {
	calls := []call{{at: 0, key: "a", hold: time.Second}, {at: 1, key: "a", hold: time.Second}, {at: 2, key: "b", hold: time.Second}}
	open := func(limit int) *virtual {
		ln, err := lanes.New(traceLanes(gate.Enforce, limit, 10))
		require.NoError(t, err)
		return &virtual{gate: ln, limit: 2, slots: 1, calls: calls}
	}
	none := func(int, int) {}
	v := open(2)
	require.NoError(t, v.play(t.Context(), time.Minute, none))
	assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, v.starts, "two are let in, and one waits in the back end")

	v = open(2)
	v.gate.Close()
	require.NoError(t, v.play(t.Context(), time.Minute, none))
	assert.Equal(t, 3, summarise(result{outcomes: v.outcomes()}).refused["shutting_down"])

	v = open(3)
	require.NoError(t, v.play(t.Context(), time.Minute, none), "the third is let in although it need not be")

	v = open(2)
	lease, err := v.gate.Acquire(t.Context(), gate.Request{Flow: "c", Cost: 1})
	require.NoError(t, err)
	defer lease.Release()
	assert.ErrorContains(t, v.play(t.Context(), 1, none), "the gate says that 2 are in flight and 0 wait, which are 1 and 0,")

	v = open(2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, v.play(ctx, time.Minute, none), context.Canceled)
	assert.Equal(t, notStarted, v.starts[2], "it was waiting, and goes home")
}

// The whole scenario, as the program plays it, to the table, the page and the JSON. It needs no
// app and no back end, and is the same each time.
func TestTraceStorm(t *testing.T) {
	file, dir := anyTrace(t), t.TempDir()
	args := []string{"-scenario", "trace", "-trace", file, "-duration", "30s", "-report", filepath.Join(dir, "report.html")}
	var stdout, again, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), args, nil, &stdout, &stderr), stderr.String())
	t.Logf("\n%s", &stdout)
	assert.Contains(t, stdout.String(), "Scenario trace: "+filepath.Base(file)+", the window with at least 50 active tenants that is the busiest (50 of them, from ")
	assert.Regexp(t, `\nIn virtual time: a back end of \d+ slots, 1s of service in the mean; \d+ tenants called, for \d+ s of service, of which \d+ s can be had; max-min shares are at most \d+ s, and of tenants that want more there are \d+\n`, stdout.String())
	assert.Regexp(t, `\nlanes off .* 0\.\d{3} .*\nheadgate .* (0\.9\d\d|1\.000) .*\n`, stdout.String())
	assert.Regexp(t, `\nheadgate \d+s over: sent \d+/\d+, answered \d+, waiting \d+, refused 0\n`, stderr.String())
	assert.NotContains(t, stderr.String(), "building")

	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	for _, id := range []string{"backend-0", "queue-0", "shares-0", "latency-0"} {
		assert.Equal(t, 1, strings.Count(string(page), `id="`+id+`"`), id)
	}
	assert.NotContains(t, string(page), `id="chat-0"`)
	assert.Contains(t, string(page), `"shared":true`)
	for _, c := range shareCharts() {
		assert.Contains(t, reportJS, `draw("`+c.ID+`", at,`)
	}

	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	var r results
	require.NoError(t, json.Unmarshal(text, &r))
	sc := r.Scenarios[0]
	assert.Equal(t, filepath.Base(file), *sc.Trace)
	require.Len(t, sc.Apps, 2)
	for _, a := range sc.Apps {
		f := a.Fairness
		require.NotNil(t, f, a.App)
		assert.Equal(t, sc.Requests, a.Answered+a.Lost)
		assert.InDelta(t, f.WorstRatio, f.Ratios[0], 1e-12)
		assert.InDelta(t, 0.7*f.DemandS, f.CapacityS, 0.01*f.DemandS)
		assert.Len(t, a.Series.Waiting, 31)
		assert.Nil(t, a.ProperRefusals)
	}
	assert.GreaterOrEqual(t, sc.Apps[1].Fairness.WorstRatio, shareBar)
	assert.Less(t, sc.Apps[0].Fairness.WorstRatio, 0.8)
	snakeCase(t, map[string]any{"apps": jsonOf(t, sc.Apps)})

	require.Zero(t, run(t.Context(), args, nil, &again, io.Discard))
	assert.Equal(t, stdout.String(), again.String())
	same, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(text, same), "to the last digit")
}

func jsonOf(t *testing.T, v any) (parsed any) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &parsed))
	return parsed
}

// With -scenario all a trace is for that scenario, and the others have their own load.
func TestTraceAmongAll(t *testing.T) {
	o, err := parse([]string{"-scenario", "all", "-trace", anyTrace(t)}, io.Discard)
	require.NoError(t, err)
	chosen, err := find(o.scenario, true)
	require.NoError(t, err)
	own, err := parse(nil, io.Discard)
	require.NoError(t, err)
	for _, sc := range chosen {
		s, err := prepare(o, sc)
		require.NoError(t, err)
		assert.Equal(t, sc.virtual, s.trace != "")
		if !sc.virtual {
			alone, err := prepare(own, sc)
			require.NoError(t, err)
			assert.Equal(t, alone.calls, s.calls)
		}
	}
}

func TestTracesWithoutShares(t *testing.T) {
	for _, c := range []struct{ text, args, want string }{
		{azureText, "", "names no tenants: -scenario trace wants arrival laws by tenant"},
		{servegenText, "", "no window with 50 active tenants"},
		{"", "", "no header"},
		{fifty(1), "-duration 11m", "-duration is 11m0s: want at most 10m0s with -scenario trace"},
		{fifty(1), "-duration 1ns", "0 calls in 1ns from 10m0s on, want 1 to 1000000: change -duration"},
		{fifty(9999), "-duration 10s", "calls in 10s from 10m0s on, want 1 to 1000000"},
	} {
		file := filepath.Join(t.TempDir(), "t.csv")
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		var stderr bytes.Buffer
		args := append([]string{"-scenario", "trace", "-trace", file}, strings.Fields(c.args)...)
		assert.Equal(t, 1, run(t.Context(), args, nil, io.Discard, &stderr))
		assert.Contains(t, stderr.String(), c.want)
	}
}

// fifty is a window of fifty tenants at a rate each.
func fifty(rate float64) string {
	text := "tenant,window_start_s,rate_per_s,cv,family,p1,p2\n"
	for i := range 50 {
		text += fmt.Sprintf("%d,600,%g,1,Gamma,1,1\n", i, cmp.Or(rate, 1))
	}
	return text
}

// However many tenants a trace has, none of them shares a lane: with the default of 1,000 lanes
// those beyond it would have the share of one.
func TestTraceTenantsHaveLanes(t *testing.T) {
	const tenants = 1200
	ln, err := lanes.New(traceLanes(gate.Enforce, tenants, tenants))
	require.NoError(t, err)
	defer ln.Close()
	for i := range tenants {
		lease, err := ln.Acquire(t.Context(), gate.Request{Flow: fmt.Sprint(i), Cost: 1})
		require.NoError(t, err)
		defer lease.Release()
	}
	assert.Zero(t, ln.Snapshot().Overflowed)
}
