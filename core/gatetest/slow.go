package gatetest

import (
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// slowScenes: bodies that come slowly, and the deadlines that end them.
func slowScenes() []scene {
	return []scene{
		timed("K9_A6_slow_sender_is_ended", slowSender),
		timed("T08_body_deadline_ends_with_the_body", deadlineEnds),
		both("H8_reader_left_behind_touches_nothing", readerLeftBehind),
		timed("T14_body_deadline_after_a_wait_ends_with_the_body", restartedDeadlineEnds),
	}
}

// slowSender: a body that stands still gives its bytes back, makes room for whoever
// waits, and its client is told.
func slowSender(e *env) {
	b := e.budget(func(c *admission.Config) { c.BodyIdle = e.short(200 * time.Millisecond) })
	o := Options{Gate: b}
	if e.BuffersBodies {
		o.ReadTimeout = e.short(200 * time.Millisecond)
	}
	s := e.start(o)
	slow := s.later(call{route: Echo, body: pause(blob(e.early()), e.early(), nil), length: 8 * mib})
	if e.BuffersBodies {
		e.declared("BuffersBodies: the server's own ReadTimeout ends it, and it never holds a byte")
		<-slow
		equal(e, "requests that the gate has decided", len(s.decidedSoFar()), 0)
		equal(e, "requests at the handler", s.seen(Echo), 0)
		return
	}
	e.await("the body is being read", func() bool { return s.seen(Echo) == 1 })
	body := blob(100)
	quick := s.later(call{route: Echo, body: reader(body), length: int64(len(body))})
	a := s.wait(slow)
	equal(e, "status of the slow", a.StatusCode, http.StatusRequestTimeout)
	equal(e, "marker of the slow", a.Header.Get(gate.MarkerHeader), string(gate.SlowBody))
	equal(e, "Connection: close", a.Close, e.protocol == http1)
	equal(e, "body of the quick", s.wait(quick).text, digestOf(body))
	s.silent()
}

// deadlineEnds: a deadline that was set for reading the body is gone with the body. It
// would otherwise cancel the request that works on, or end the next on its connection.
func deadlineEnds(e *env) {
	idle := e.short(200 * time.Millisecond)
	timed := e.slots(100, 0)
	timed.idle = idle
	s := e.start(Options{Gate: e.budget(func(c *admission.Config) { c.BodyIdle = idle })})
	limited := e.start(Options{Gate: timed, ReadTimeout: 2 * idle})
	var requests []work
	for _, s := range []*server{s, limited} {
		for _, length := range []int64{1000, 0} {
			requests = append(requests, work{s, call{route: Watch, body: reader(blob(1000)), length: length}})
		}
	}
	e.workOn(4*idle, requests, func() bool { return s.seen(Watch) == 2 && limited.seen(Watch) == 2 })
	dials := s.dials.Load()
	equal(e, "status of the next", s.get(call{route: Ignore}).StatusCode, http.StatusOK)
	if e.protocol == http2 {
		equal(e, "connections for the next", s.dials.Load()-dials, 0)
	} else {
		s.kept()
	}
}

// restartedDeadlineEnds: the same for the server's ReadTimeout, when the adapter has
// started it anew after a wait: without a body, with one, and behind one.
func restartedDeadlineEnds(e *env) {
	timeout := e.short(400 * time.Millisecond)
	g, second := e.slots(2, forever), e.slots(1, forever)
	free := []func(){e.fill(g, 0), e.fill(g, 0), e.fill(second, 0)}
	s := e.start(Options{Gate: g, ReadTimeout: timeout})
	nested := e.start(Options{Gate: e.slots(1, 0), ReadTimeout: timeout}, func(c *script) { c.second = second })
	e.workOn(3*timeout/2, []work{
		{s, call{route: Watch}},
		{s, call{route: Watch, body: reader(blob(1000)), length: 1000}},
		{nested, call{route: Nested, arg: "work", body: reader(blob(1000))}},
	}, func() bool {
		if g.queued() == 2 && second.queued() == 1 {
			for _, f := range free {
				f()
			}
		}
		return s.seen(Watch) == 2 && second.queued() == 0
	})
}

// readerLeftBehind: a goroutine that reads on when its handler has returned, as a
// transport may, touches nothing of the server's: it would end the process.
func readerLeftBehind(e *env) {
	g, second := e.slots(10, 0), e.slots(10, 0)
	g.idle, second.idle = forever, forever
	s := e.start(Options{Gate: g, Skip: everySecond()}, func(c *script) { c.second = second })
	const times = 4 // behind the middleware and past it
	for i := range times {
		c := call{route: Leftover, body: reader(blob(10)), length: 10}
		if i < 2 {
			c.arg = "acquire"
		}
		equal(e, "status", s.get(c).StatusCode, http.StatusOK)
	}
	e.await("the slots come back", func() bool { return g.inUse()+second.inUse() == 0 })
	s.proceed()
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		return
	}
	for range times {
		select {
		case got := <-s.leftovers:
			equal(e, "panic of a reader that was left behind", got, nil)
		case <-e.alive.Done():
			e.Fatalf("a reader that was left behind hangs")
		}
	}
	s.silent()
}

// work is a request to a handler that works on when it has read the body.
type work struct {
	s    *server
	call call
}

// workOn sends the requests, and checks that their contexts live while the handlers
// work on for d, counted from the moment when all do.
func (e *env) workOn(d time.Duration, requests []work, all func() bool) {
	e.Helper()
	var done []<-chan outcome
	for _, r := range requests {
		done = append(done, r.s.later(r.call))
	}
	e.await("all handlers work", all)
	e.pass(d)
	for _, r := range requests {
		r.s.proceed()
	}
	for i, r := range requests {
		equal(e, "what the handler found", r.s.wait(done[i]).text, "context: <nil>")
	}
}
