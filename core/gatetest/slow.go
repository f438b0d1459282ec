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
		both("K9_A6_slow_sender_is_ended", slowSender),
		both("body_deadline_ends_with_the_body", deadlineEnds),
		both("T14_body_deadline_after_a_wait_ends_with_the_body", restartedDeadlineEnds),
	}
}

// slowSender: a body that stands still gives its bytes back, makes room for whoever
// waits, and its client is told.
func slowSender(e *env) {
	b := e.budget(func(c *admission.Config) { c.BodyIdle = 200 * time.Millisecond })
	o := Options{Gate: b}
	if e.BuffersBodies {
		o.ReadTimeout = 200 * time.Millisecond
	}
	s := e.start(o)
	slow := s.later(call{route: Echo, body: pause(blob(1000), 1000, nil), length: 8 * mib})
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
	const idle = 200 * time.Millisecond
	s := e.start(Options{Gate: e.budget(func(c *admission.Config) { c.BodyIdle = idle })})
	s.workOn(2 * idle)
	e.pass(2 * idle)
	equal(e, "status of the next", s.get(call{route: Ignore}).StatusCode, http.StatusOK)
	equal(e, "connections for all", s.dials.Load(), 1)
}

// restartedDeadlineEnds: the same for the server's ReadTimeout, when the adapter has
// started it anew after a wait.
func restartedDeadlineEnds(e *env) {
	const timeout = 400 * time.Millisecond
	b := e.budget(nil)
	giveBack := e.fill(b, 8*mib)
	s := e.start(Options{Gate: b, ReadTimeout: timeout})
	free := time.AfterFunc(timeout/2, giveBack)
	defer free.Stop()
	s.workOn(3 * timeout / 2)
}

// workOn sends bodies of both framings to a handler that reads them and works on for
// d, one after the other on one connection.
func (s *server) workOn(d time.Duration) {
	e := s.e
	e.Helper()
	timer := time.AfterFunc(e.suite.patience, s.proceed)
	defer timer.Stop()
	for i, length := range []int64{1000, 0} {
		done := s.later(call{route: Watch, body: reader(blob(1000)), length: length})
		e.await("the handler works", func() bool { return s.seen(Watch) == i+1 })
		if i == 0 {
			e.pass(d)
			s.proceed()
		}
		equal(e, "what the handler found", s.wait(done).text, "context: <nil>")
	}
}
