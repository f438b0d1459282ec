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

// variant is the app in one of the ways it is played against.
type variant struct {
	name string
	argv []string
	bare bool   // argv lacks the flag that leaves headgate out
	yaml string // its configuration, "" = the scenario's
	ask  ask    // nil = it says nothing of itself
	peer *peer  // whose middleware it has, nil = no other library's
}

// result is a storm against one variant.
type result struct {
	name     string
	outcomes []outcome
	samples  *samples
	peer     *peer
	limit    peerLimit // of the peer

	peakFlight int64
	peakMemory int64 // 0 = unknown
	took       time.Duration
	end        string
	died       time.Duration // after so long, by itself; 0 = it did not
	group      *groupCounts  // what its cgroup counted, nil = it had none

	back *backEndResult // nil = the scenario has none
	fair *fairness      // of a scenario in virtual time
}

// storm is a plan, where it is played, and what came of it.
type storm struct {
	scenario scenario
	trace    string // the file that is played, "" = the scenario's own load
	title    string // what is played
	length   time.Duration
	calls    []call
	pool     pool
	upstream string // the program that plays the back end, "" = there is none
	file     string // where the configuration is written to
	env      []string
	log      io.Writer // of the app; nil = nowhere

	limit   string // the memory limit that the last app had, for people
	bytes   int64  // of that limit, 0 = none was enforced
	results []result
}

// play plays what the options say: each scenario against the app as it is, with
// headgate, and with each of the other libraries that are asked for. p hears how it
// goes and log what the apps write.
func play(ctx context.Context, o options, env []string, p progress, log io.Writer) ([]*storm, error) {
	chosen, err := find(o.scenario, o.trace != "")
	if err != nil {
		return nil, err
	}
	return playScenarios(ctx, o, chosen, env, p, log)
}

// playScenarios is play for scenarios that may have no name.
func playScenarios(ctx context.Context, o options, chosen []scenario, env []string, p progress, log io.Writer) ([]*storm, error) {
	others, err := parsePeers(o.against)
	if err != nil {
		return nil, err
	}
	var storms []*storm
	for _, sc := range chosen {
		s, err := prepare(o, sc)
		if err != nil {
			return nil, err
		}
		s.env, s.log = env, log
		storms = append(storms, s)
	}
	dir, err := os.MkdirTemp("", "headgate-storm-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary directory is no loss
	config := filepath.Join(dir, "headgate.yaml")
	var apps []variant
	for _, s := range storms {
		s.file = config
		if s.scenario.virtual {
			continue
		}
		if apps == nil {
			if apps, err = variants(ctx, p, dir, config, others); err != nil {
				return nil, err
			}
		}
		if s.scenario.backEnd == nil {
			continue
		}
		if s.upstream, err = build(ctx, dir, upstreamCommand); err != nil {
			return nil, err
		}
	}
	return storms, each(ctx, o, p, storms, apps)
}

// each plays the storms one after another, each against all apps. After an error what
// was played is as good as not.
func each(ctx context.Context, o options, p progress, storms []*storm, apps []variant) error {
	for _, s := range storms {
		p.say("%s: %d requests", s.name(), requests(s.calls))
		var err error
		if s.scenario.virtual {
			err = s.simulate(ctx, p)
		} else {
			s.pool.complete(rand.New(rand.NewPCG(o.seed, 2)), s.calls)
			err = s.all(ctx, o, p, apps)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
	}
	return nil
}

// name says in short what is played.
func (s *storm) name() string {
	if s.trace != "" {
		return "trace " + s.trace
	}
	return "scenario " + s.scenario.name
}

// variants builds the apps into dir and says how each is started.
func variants(ctx context.Context, p progress, dir, config string, others []peer) ([]variant, error) {
	p.say("building the gateway")
	bin, err := build(ctx, dir, gateway)
	if err != nil {
		return nil, err
	}
	apps := bareAndHeadgate(config, bin, "-addr", "127.0.0.1:0", "-framework", "nethttp")
	if len(others) == 0 {
		return apps, nil
	}
	p.say("building the app with other libraries, the first time this may take a minute")
	versus, err := versusDir(ctx)
	if err != nil {
		return nil, err
	}
	if bin, err = buildPeers(ctx, versus, dir); err != nil {
		return nil, err
	}
	for _, other := range others {
		apps = append(apps, variant{name: other.name, argv: []string{bin}, ask: askPeer, peer: &other})
	}
	return apps, nil
}

// bareAndHeadgate are the two variants of the gateway that argv starts. Of the
// configuration the bare one has all but the gates.
func bareAndHeadgate(config string, argv ...string) []variant {
	argv = append(slices.Clip(argv), "-config", config)
	return []variant{
		{name: "bare", argv: argv, bare: true},
		{name: "headgate", argv: argv, ask: askHeadgate},
	}
}

// lanesOff names the app that a scenario may have in place of the bare one.
const lanesOff = "lanes off"

// base is the app that v is in this storm.
func (s *storm) base(v variant) variant {
	if v.bare && s.scenario.lanesOff != "" {
		return variant{name: lanesOff, argv: v.argv, yaml: s.scenario.lanesOff}
	}
	return v
}

// all plays the storm against all apps, one after another. The other libraries come
// after headgate, whose budget decides their limit.
func (s *storm) all(ctx context.Context, o options, p progress, apps []variant) error {
	var budget int64
	for _, v := range apps {
		if v.peer != nil && s.scenario.backEnd != nil {
			continue
		}
		v = s.base(v)
		r, err := s.against(ctx, v, o, p, budget)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		budget = max(budget, r.samples.budget)
		s.results = append(s.results, r)
	}
	return nil
}

// prepare makes the plan, but for the bodies.
func prepare(o options, sc scenario) (*storm, error) {
	if sc.virtual {
		return planTrace(o, sc)
	}
	plan := rand.New(rand.NewPCG(o.seed, 1))
	s := &storm{scenario: sc, pool: newPool(o.seed)}
	if o.trace == "" || o.scenario == everything { // which has one that plays it
		s.length = cmp.Or(o.duration, sc.length)
		s.calls = sc.plan(plan, s.length)
		s.title = fmt.Sprintf("Scenario %s: %s", sc.name, sc.about)
		if s.length > 0 {
			s.title += fmt.Sprintf(", for %v", s.length)
		}
		return s, nil
	}
	t, err := openTrace(o.trace)
	if err != nil {
		return nil, err
	}
	s.length, s.trace = cmp.Or(o.duration, traceLength), filepath.Base(o.trace)
	st, err := t.plan(plan, o, sc, s.length)
	if err != nil {
		return nil, err
	}
	s.calls = st.calls
	s.title = fmt.Sprintf("Trace %s: %v from %v on, at %g times its speed", s.trace, st.length, st.from.Round(time.Millisecond), st.speed)
	return s, nil
}

// traceLength is how long a trace is played.
const traceLength = 20 * time.Second

// derived is the budget that headgate derives from a memory limit.
func derived(limit *memoryLimit) int64 {
	const least = 8 << 20
	return max(limit.bytes/4/8, least)
}

// configure returns a scenario's YAML for an app under a limit. Headgate finds the
// limit of a cgroup by itself; where there is none, its budget is set to what it would
// derive.
func configure(yaml string, limit *memoryLimit) string {
	if limit.group != "" {
		return yaml
	}
	return strings.Replace(yaml, "admission:\n", fmt.Sprintf("admission:\n  max_inflight_bytes: %v\n", gate.Size(derived(limit))), 1)
}

// against plays the storm against one variant of the app. budget is headgate's, 0 =
// not known.
func (s *storm) against(ctx context.Context, v variant, o options, p progress, budget int64) (result, error) {
	r := result{name: v.name, peer: v.peer}
	stage := newStage(v.name, requests(s.calls))
	defer p.follow(stage)()
	back, err := s.scenario.backEnd.start(ctx, s.upstream, s.env, s.log)
	if err != nil {
		return r, err
	}
	defer back.stop()
	limit, err := newMemoryLimit(ctx, int64(o.memory), o.limitBy)
	if err != nil {
		return r, err
	}
	defer limit.close()
	s.limit, s.bytes = limit.how, limit.bytes
	argv := append(slices.Clip(v.argv), back.flags()...)
	if v.bare {
		argv = append(argv, "-bare")
	}
	if v.peer != nil {
		r.limit = s.limitPeers(o, cmp.Or(budget, derived(limit)))
		argv = append(slices.Clip(argv), v.peer.flags(s, r.limit)...)
	}
	if err := os.WriteFile(s.file, []byte(configure(cmp.Or(v.yaml, s.scenario.config), limit)), 0o600); err != nil {
		return r, err
	}
	a, err := start(ctx, argv, s.env, limit, s.log)
	if err != nil {
		return r, err
	}
	defer a.stop()
	c := newClient(a.url, s.pool)
	defer c.close()
	if v.peer != nil {
		c.refusals = refusals()
	}

	begin := time.Now()
	if err := s.send(ctx, v, &r, stage, a, c, back); err != nil {
		return r, err
	}
	stage.enter(stopping)
	a.stop()
	var ended time.Time
	if r.end, ended = a.end(); !ended.IsZero() {
		r.died = ended.Sub(begin)
	}
	r.peakMemory, r.group = a.peakMemory(r.samples.peakMemory), limit.counts()
	if r.peakFlight = r.samples.peakFlight; v.ask == nil {
		_, r.peakFlight = c.flight.read()
	}
	stage.enter(over)
	return r, nil
}

// send sends all calls to the app, and watches it until they are over, and until the back
// end is.
func (s *storm) send(ctx context.Context, v variant, r *result, stage *stage, a *app, c *client, back *liveBackEnd) error {
	stage.enter(sending)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	seen := make(chan *samples, 1)
	go func() { seen <- watch(watching, a, c, v.ask, back) }()
	begin := time.Now()
	r.outcomes = slices.Concat(rain(ctx, s.calls, func(ctx context.Context, k call, due time.Time) []outcome {
		return stage.do(k.parts(), func() []outcome { return c.do(ctx, k, due) })
	})...)
	r.took = time.Since(begin)
	var err error
	if back != nil && ctx.Err() == nil {
		stage.enter(settling)
		r.back, err = back.settle(ctx, requests(s.calls))
	}
	stopWatching()
	r.samples = <-seen
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// rain starts do for every call when it is due, however late others end, and returns
// what they return, in the order of the calls, when the last one has ended.
func rain[T any](ctx context.Context, calls []call, do func(context.Context, call, time.Time) T) []T {
	outcomes := make([]T, len(calls))
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
