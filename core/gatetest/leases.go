package gatetest

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// leaseScenes: a lease lives exactly as long as its request's work.
func leaseScenes() []scene {
	return []scene{
		both("T01_F22_panic_releases", panicReleases),
		both("T02_F15_abort_passes_unchanged", abortPasses),
		both("T10_F2_goexit_releases", goexitReleases),
		both("T03_F14_F1_answered_early_still_holds", answeredEarly),
		both("T04_redispatch_is_admitted_once", redispatch),
		both("redispatch_after_release_is_admitted_again_T04", redispatchAgain),
		both("H14_gate_twice_in_a_chain_admits_once", gateTwice),
		both("T09_F10_early_release_counts_once", earlyRelease),
		both("F4_turned_away_in_between_releases", turnedAway),
		both("A19_gate_without_leases", withoutLeases),
	}
}

// panicReleases: whatever blows up and wherever it is recovered, the slot comes back,
// and the recovery in front of the gate meets the very value.
func panicReleases(e *env) {
	kinds := []string{"string", "nil map", "abort"}
	for _, at := range []place{nowhere, outside, inside} {
		if at == nowhere && e.PanicsEndProcess {
			e.declared("PanicsEndProcess")
			continue
		}
		g := e.slots(1000, 0)
		s := e.start(Options{Gate: g}, func(c *script) { c.recovery = at })
		for _, kind := range kinds {
			for _, body := range []int{0, 1000} {
				c := call{method: http.MethodPost, route: Panic, arg: kind, length: int64(body)} // clients repeat a lost GET
				if body > 0 {
					c.body = reader(blob(body))
				}
				a, err := s.send(c)
				if recovered := at != nowhere && (kind != "abort" || e.PanicsEndProcess); recovered {
					if err != nil || a.StatusCode != http.StatusInternalServerError {
						e.Errorf("%s, recovered: %v %v, want a 500", kind, a.Response, err)
					}
				} else if err == nil {
					e.Errorf("%s: the client got %d for a cut answer", kind, a.StatusCode)
				}
			}
		}
		equal(e, "requests that the gate was asked for", len(g.requests()), 2*len(kinds))
		e.await("the slots of the panics come back", func() bool { return g.inUse() == 0 })
		if at == outside {
			e.checkPanics(s, kinds)
		}
	}
}

// checkPanics compares what was recovered with what was thrown, twice each.
func (e *env) checkPanics(s *server, kinds []string) {
	e.Helper()
	caught := s.caught()
	if len(caught) != 2*len(kinds) {
		e.Fatalf("the recovery in front of the gate met %d panics of %d: %v", len(caught), 2*len(kinds), caught)
	}
	for i, v := range caught {
		_, isRuntime := v.(runtime.Error)
		switch kind := kinds[i/2]; {
		case kind == "string" && v == "boom", kind == "nil map" && isRuntime, kind == "abort" && v == http.ErrAbortHandler: //nolint:errorlint // the very value
		default:
			e.Errorf("%s arrived in front of the gate as %T %v", kind, v, v)
		}
	}
}

// abortPasses: the client sees that its answer was cut, and the log stays silent.
func abortPasses(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g}, func(c *script) { c.recovery = outside })
	a, err := s.send(call{method: http.MethodPost, route: Abort})
	if e.PanicsEndProcess {
		e.declared("PanicsEndProcess")
	} else if err == nil {
		e.Errorf("the client took a cut answer for a whole one: %d %q", a.StatusCode, a.text)
	}
	e.await("the abort's slot comes back", func() bool { return g.inUse() == 0 })
	e.await("the abort arrives in front of the gate", func() bool { return len(s.caught()) == 1 })
	if v := s.caught()[0]; v != http.ErrAbortHandler { //nolint:errorlint // the very value
		e.Errorf("the abort arrived in front of the gate as %T %v", v, v)
	}
	if !e.PanicsEndProcess { // whose recovery answers once more
		s.silent()
	}
}

// goexitReleases: a handler that ends its goroutine, as t.FailNow does, holds nothing.
// What its client gets is the server's affair.
func goexitReleases(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g})
	for i, body := range []int{0, 1000} {
		ctx, leave := context.WithCancel(e.ctx)
		c := call{method: http.MethodPost, route: Panic, arg: "goexit", ctx: ctx, length: int64(body)}
		if body > 0 {
			c.body = reader(blob(body))
		}
		done := s.later(c)
		e.await("the request is admitted", func() bool { return s.seen(Panic) == i+1 })
		e.await("the slot comes back", func() bool { return g.inUse() == 0 })
		leave()
		<-done
	}
	equal(e, "requests that the gate was asked for", len(g.requests()), 2)
}

// answeredEarly: a wrapper that answers while its handler works on is outside of the
// gate, and the work holds its slot to its real end.
func answeredEarly(e *env) {
	const limit, late = 2, 100 * time.Millisecond
	g := e.slots(limit, 0)
	s := e.start(Options{Gate: g}, func(c *script) {
		if !e.NotNetHTTP {
			c.timeout = late
		}
	})
	for asked, held := 0, 0; held < limit; asked++ {
		if e.NotNetHTTP {
			e.declared("NotNetHTTP")
			s.leaveWaiting(call{route: Hold}, func() bool { return s.seen(Hold) == held+1 })
			held++
			continue
		}
		a := s.get(call{route: Hold})
		equal(e, "status of the timeout's answer", a.StatusCode, http.StatusServiceUnavailable)
		equal(e, "marker of the timeout's answer", a.Header.Get(gate.MarkerHeader), "")
		if s.decision(asked).Err == nil { // not too late to be admitted
			held++
		}
	}
	e.await("both are at work", func() bool { return s.seen(Hold) == limit })
	equal(e, "slots held by work that goes on", g.inUse(), limit)
	a := e.start(Options{Gate: g}).get(call{route: Hold}) // without the timeout
	equal(e, "marker of one more", a.Header.Get(gate.MarkerHeader), string(gate.QueueFull))
	s.proceed()
	e.await("the work's slots come back", func() bool { return g.inUse() == 0 })
	if !e.NotNetHTTP {
		for {
			a, err := s.send(call{method: http.MethodPost, route: Panic})
			if err == nil && a.text == lateText && e.alive.Err() == nil {
				continue // before the handler had begun
			}
			equal(e, "a panic inside of the timeout cuts the answer", err != nil, true)
			break
		}
		e.await("the panic's slot comes back", func() bool { return g.inUse() == 0 })
	}
	if s.peak.Load() > limit {
		e.Errorf("%d handlers ran at once, limit %d", s.peak.Load(), limit)
	}
}

// redispatch: a request that is sent through the app again holds one slot, with one
// slot there is.
func redispatch(e *env) {
	g, b := e.slots(1, forever), e.budget(nil)
	defer e.fill(b, 7*mib)()
	for _, gate := range []gate.Gate{g, b} {
		s := e.start(Options{Gate: gate})
		body := blob(mib * 5 / 8) // twice that does not fit
		for range 3 {
			a := s.get(call{route: Again, body: reader(body), length: int64(len(body))})
			equal(e, "status", a.StatusCode, http.StatusOK)
			equal(e, "body", a.text, digestOf(body))
		}
		equal(e, "decisions", len(s.decidedSoFar()), 3)
	}
	equal(e, "requests that the gate was asked for", len(g.requests()), 3)
}

// redispatchAgain: the mark of an admitted request lives as long as its lease. What is
// sent through the app behind that is put to the gate, and holds a lease again.
func redispatchAgain(e *env) {
	const times = 3
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g})
	for i := range times {
		body := blob(1000 + i)
		a := s.get(call{route: Again, arg: "released", body: reader(body), length: int64(len(body))})
		equal(e, "status", a.StatusCode, http.StatusOK)
		equal(e, "body", a.text, digestOf(body))
	}
	equal(e, "requests that the gate was asked for", len(g.requests()), 2*times)
	equal(e, "decisions", len(s.decidedSoFar()), 2*times)
}

func gateTwice(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g, Inner: g})
	for range 3 {
		a := s.get(call{route: Echo, body: reader(blob(100)), length: 100})
		equal(e, "status", a.StatusCode, http.StatusOK)
	}
	equal(e, "requests that the gate was asked for", len(g.requests()), 3)
}

// earlyRelease: the app may release from anywhere and as often as it likes; nobody
// else's slot goes with it, and the handler's end adds nothing.
func earlyRelease(e *env) {
	g := e.slots(2, 0)
	giveBack := e.fill(g, 0) // somebody else's
	defer giveBack()
	s := e.start(Options{Gate: g})
	done := s.later(call{route: Early})
	e.await("the handler has released", func() bool { return s.seen(Early) == 1 && g.inUse() == 1 })
	a := s.get(call{route: Ignore})
	equal(e, "status of the next", a.StatusCode, http.StatusOK)
	s.proceed()
	equal(e, "status", s.wait(done).StatusCode, http.StatusOK)
	e.await("only the other slot is held", func() bool { return g.inUse() == 1 })
}

// turnedAway: what stands between the gate and the handler may answer by itself.
func turnedAway(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g, Auth: func(ctx context.Context, header func(string) string) (context.Context, bool) {
		return ctx, header("Authorization") != ""
	}})
	for range 3 {
		a := s.get(call{route: Echo, body: reader(blob(100)), length: 100})
		equal(e, "status", a.StatusCode, http.StatusUnauthorized)
		e.await("the slot comes back", func() bool { return g.inUse() == 0 })
	}
	equal(e, "requests at the handler", s.seen(Echo), 0)
}

// withoutLeases: a gate that is off gives the zero lease, and everything works.
func withoutLeases(e *env) {
	s := e.start(Options{Gate: e.budget(func(c *admission.Config) { c.Mode = gate.Off })})
	body := blob(100_000)
	a := s.get(call{route: Echo, body: reader(body), length: int64(len(body))})
	equal(e, "body", a.text, digestOf(body))
	a = s.get(call{route: Inspect})
	if !strings.Contains(a.text, `"Live":false`) {
		e.Errorf("the zero lease was taken for a live one: %s", a.text)
	}
	equal(e, "decisions", len(s.decidedSoFar()), 2)
}
