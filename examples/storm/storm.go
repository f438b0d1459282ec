package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// variant is the app in one of the two ways it is played against.
type variant struct {
	name string
	args []string
	with bool // headgate
}

// result is a storm against one variant.
type result struct {
	name     string
	with     bool
	outcomes []outcome
	samples  *samples

	peakFlight int64
	peakMemory int64 // 0 = unknown
	took       time.Duration
	end        string
	died       time.Duration // after so long, by itself; 0 = it did not
}

// storm is a plan and where it is played.
type storm struct {
	title  string // what is played
	calls  []call
	pool   pool
	config string // YAML
	file   string // where it is written to
	env    []string
	log    io.Writer // of the app; nil = nowhere

	limit string // the memory limit that the last app had, for people
	bytes int64  // of that limit, 0 = none was enforced
}

// play plays what the options say against the app as it is and with headgate, and
// writes its progress to stderr.
func play(ctx context.Context, o options, env []string, stderr io.Writer) (*storm, []result, error) {
	sc, err := find(o.scenario)
	if err != nil {
		return nil, nil, err
	}
	s, err := prepare(o, sc)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "headgate-storm-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary directory is no loss
	s.file, s.env = filepath.Join(dir, "headgate.yaml"), env
	if o.verbose {
		s.log = stderr
	}
	_, _ = fmt.Fprintln(stderr, "building the gateway")
	bin, err := build(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	s.pool.complete(rand.New(rand.NewPCG(o.seed, 2)), s.calls)
	results, err := s.both(ctx, o, stderr, bin, "-addr", "127.0.0.1:0", "-framework", "nethttp")
	return s, results, err
}

// both plays the storm against both variants of the app that argv starts.
func (s *storm) both(ctx context.Context, o options, stderr io.Writer, argv ...string) ([]result, error) {
	var results []result
	for _, v := range []variant{
		{name: "bare", args: append(slices.Clip(argv), "-bare")},
		{name: "headgate", args: append(slices.Clip(argv), "-config", s.file), with: true},
	} {
		_, _ = fmt.Fprintf(stderr, "%s: %d requests\n", v.name, len(s.calls))
		r, err := s.against(ctx, v, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// prepare makes the plan, but for the bodies.
func prepare(o options, sc scenario) (*storm, error) {
	plan := rand.New(rand.NewPCG(o.seed, 1))
	s := &storm{pool: newPool(o.seed), config: sc.config}
	if o.trace == "" {
		length := cmp.Or(o.duration, sc.length)
		s.calls = sc.plan(plan, length)
		s.title = fmt.Sprintf("Scenario %s: %s, for %v", sc.name, sc.about, length)
	} else {
		t, err := openTrace(o.trace)
		if err != nil {
			return nil, err
		}
		st, err := t.plan(plan, o, sc, cmp.Or(o.duration, traceLength))
		if err != nil {
			return nil, err
		}
		s.calls = st.calls
		s.title = fmt.Sprintf("Trace %s: %v from %v on, at %g times its speed", filepath.Base(o.trace), st.length, st.from.Round(time.Millisecond), st.speed)
	}
	return s, nil
}

// traceLength is how long a trace is played.
const traceLength = 20 * time.Second

// configure returns a scenario's YAML for an app under a limit. Headgate finds the
// limit of a cgroup by itself; where there is none, its budget is set to what it would
// derive.
func configure(yaml string, limit *memoryLimit) string {
	if limit.group != "" {
		return yaml
	}
	const least = 8 << 20
	budget := gate.Size(max(limit.bytes/4/8, least))
	return strings.Replace(yaml, "admission:\n", fmt.Sprintf("admission:\n  max_inflight_bytes: %v\n", budget), 1)
}

// against plays the storm against one variant of the app.
func (s *storm) against(ctx context.Context, v variant, o options) (result, error) {
	limit, err := newMemoryLimit(ctx, int64(o.memory), o.limitBy)
	if err != nil {
		return result{}, err
	}
	defer limit.close()
	s.limit, s.bytes = limit.how, limit.bytes
	if err := os.WriteFile(s.file, []byte(configure(s.config, limit)), 0o600); err != nil {
		return result{}, err
	}
	a, err := start(ctx, v.args, s.env, limit, s.log)
	if err != nil {
		return result{}, err
	}
	defer a.stop()
	c := newClient(a.url, s.pool)
	defer c.close()

	watching, stopWatching := context.WithCancel(ctx)
	seen := make(chan *samples, 1)
	go func() { seen <- watch(watching, a, c, v.with) }()
	begin := time.Now()
	outcomes := rain(ctx, s.calls, c.do)
	r := result{name: v.name, with: v.with, outcomes: outcomes, took: time.Since(begin)}
	stopWatching()
	r.samples = <-seen
	if err := ctx.Err(); err != nil {
		return r, err
	}

	a.stop()
	var ended time.Time
	if r.end, ended = a.end(); !ended.IsZero() {
		r.died = ended.Sub(begin)
	}
	r.peakMemory = a.peakMemory(r.samples.peakMemory)
	if r.peakFlight = r.samples.peakFlight; !v.with {
		_, r.peakFlight = c.flight.read()
	}
	return r, nil
}

// rain starts do for every call when it is due, however late others end, and returns
// what they return, in the order of the calls, when the last one has ended.
func rain(ctx context.Context, calls []call, do func(context.Context, call, time.Time) outcome) []outcome {
	outcomes := make([]outcome, len(calls))
	var wg sync.WaitGroup
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, k := range calls {
		due := begin.Add(k.at)
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done(): // the rest fails at once
		}
		wg.Go(func() { outcomes[i] = do(ctx, k, due) })
	}
	wg.Wait()
	return outcomes
}
