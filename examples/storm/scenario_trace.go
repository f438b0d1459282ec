package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/examples/internal/upstream"
)

// The trace scenario: recorded tenants call a back end that can do 70 % of what they want.
// It plays in virtual time, in this process: 300 s are over in some seconds, and the same
// seed is the same result to the last digit.
//
// The load is that of the busiest window of the trace in which at least 50 tenants call, each
// tenant's arrivals drawn from its law there. A call takes an exponential time of 1 s in
// the mean. The back end has as many slots as make 70 % of the time demanded, and serves
// what it is given beyond them first come first served.
//
// In the first row the lanes are off, so that order is the back end's. In the second they
// enforce a fixed limit, which is the slots: each call costs 1, since nobody knows before how
// long it will take. The bounds of the queue and the longest wait are such that nobody is
// refused in either row: what differs is who is served, not how much.
const (
	traceTenants = 50
	traceWindow  = 300 * time.Second
	traceService = time.Second
	traceRoom    = 0.7 // of the demand
	traceWait    = time.Hour
)

func traceStorm() scenario {
	return scenario{
		name:    "trace",
		about:   fmt.Sprintf("the busiest window with at least %d active tenants, mean service %v, capacity %g %% of the demand", traceTenants, traceService, 100*traceRoom),
		length:  traceWindow,
		wait:    traceWait,
		virtual: true,
		columns: traceColumns,
		backEnd: &backEnd{service: traceService, queues: true},
	}
}

// planTrace makes the storm of a trace of arrival laws. The error says what of it cannot be
// played.
func planTrace(o options, sc scenario) (*storm, error) {
	t, err := openTrace(o.trace)
	if err != nil {
		return nil, err
	}
	s := &storm{scenario: sc, trace: filepath.Base(o.trace), length: cmp.Or(o.duration, sc.length)}
	if len(t.windows) == 0 {
		return nil, fmt.Errorf("%s: names no tenants: -scenario trace wants arrival laws by tenant, see README.md", o.trace)
	}
	laws := busiestWith(t.windows, traceTenants)
	if len(laws) == 0 {
		return nil, fmt.Errorf("%s: no window with %d active tenants", o.trace, traceTenants)
	}
	return s, s.draw(o, laws)
}

// draw makes the calls and the back end of a storm of the laws of one window.
func (s *storm) draw(o options, laws []window) error {
	if s.length > windowLength {
		return fmt.Errorf("-duration is %v: want at most %v with -scenario trace, which plays one window", s.length, windowLength)
	}
	tenants, expected := make(map[string]bool), 0.0
	for _, w := range laws {
		tenants[w.tenant] = true
		expected += w.rate * s.length.Seconds()
	}
	var demand time.Duration
	if expected <= traceMost {
		s.calls, demand = drawTenants(o.seed, laws, s.length)
		expected = float64(len(s.calls))
	}
	if expected == 0 || expected > traceMost {
		return fmt.Errorf("%s: %.0f calls in %v from %v on, want 1 to %d: change -duration", o.trace, expected, s.length, laws[0].start, traceMost)
	}
	b := *s.scenario.backEnd
	b.capacity = max(1, int(math.Round(traceRoom*demand.Seconds()/s.length.Seconds())))
	if b.capacity > maxSlots {
		return fmt.Errorf("%s: %.0f s of service are demanded in %v, want at most %d times as much as that", o.trace, demand.Seconds(), s.length, maxSlots)
	}
	s.scenario.backEnd = &b
	s.title = fmt.Sprintf("Scenario trace: %s, the window with at least %d active tenants that is the busiest (%d of them, from %v on), for %v",
		s.trace, traceTenants, len(tenants), laws[0].start, s.length)
	return nil
}

// The largest number of calls, which is the largest bound of a lane's queue, and of slots.
const (
	traceMost = 1_000_000
	maxSlots  = 100_000
)

// drawTenants draws the calls of all tenants in the first length of their window, in
// order, and how long each takes. demand is how much service that is until the end of it.
func drawTenants(seed uint64, laws []window, length time.Duration) (calls []call, demand time.Duration) {
	arrivals, services := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 3))
	for _, w := range laws {
		w.draw(arrivals, w.start+length, func(at time.Duration) {
			calls = append(calls, call{at: at - w.start, key: w.tenant, kind: drawn})
		})
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	for i := range calls {
		calls[i].hold = time.Duration(services.ExpFloat64() * float64(traceService))
		demand += min(calls[i].hold, length-calls[i].at)
	}
	return calls, demand
}

// traceLanes are the lanes of a row: off, or with a fixed limit, room for all calls, and a lane
// for each tenant.
func traceLanes(mode gate.Mode, slots, calls int) lanes.Config {
	c := lanes.DefaultConfig()
	c.Mode, c.VirtualLanes, c.Algorithm = mode, true, lanes.Fixed
	c.MinLimit, c.InitialLimit, c.MaxLimit = 1, slots, max(slots, c.MaxLimit)
	c.MaxQueueCount, c.MaxQueueCost, c.MaxWait = calls, calls, traceWait
	c.MaxLanes = max(calls, c.MaxLanes)
	return c
}

// simulate plays the storm in virtual time, with lanes off and in enforce.
func (s *storm) simulate(ctx context.Context, p progress) error {
	s.limit = "no memory limit: in virtual time"
	for _, row := range []struct {
		name string
		mode gate.Mode
	}{{lanesOff, gate.Off}, {"headgate", gate.Enforce}} {
		res, err := s.simulated(ctx, p, row.name, row.mode)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		s.results = append(s.results, res)
	}
	return nil
}

// simulated is the storm against lanes of one mode.
func (s *storm) simulated(ctx context.Context, p progress, name string, mode gate.Mode) (result, error) {
	r := result{name: name, took: s.length, end: "in virtual time"}
	slots := s.scenario.backEnd.capacity
	stage := newStage(name, len(s.calls))
	defer p.follow(stage)()
	ln, err := lanes.New(traceLanes(mode, slots, len(s.calls)))
	if err != nil {
		return r, err
	}
	defer ln.Close()
	v := &virtual{gate: ln, slots: slots, calls: s.calls}
	if mode == gate.Enforce {
		v.limit = slots
	}
	stage.enter(sending)
	if err := v.play(ctx, s.length, stage.count); err != nil {
		return r, err
	}
	stage.enter(over)
	r.samples, r.fair = &v.seen, measure(s.calls, v.starts, slots, s.length)
	r.fair.waiting = v.most
	r.outcomes = v.outcomes()
	r.back = &backEndResult{*s.scenario.backEnd, upstream.Stats{
		Started: int64(len(only(r.outcomes, drawn)) - r.fair.left), MaxConcurrent: v.inside, WorkMS: r.fair.served.Milliseconds(),
	}, len(s.calls)}
	return r, nil
}

// count says how many calls have been sent and how many of those have started.
func (s *stage) count(sent, started int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.ended[answered] = sent, started
}
