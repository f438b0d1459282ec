package gatetest

import (
	"strings"

	"github.com/headgate-go/headgate/core/gate"
)

// serverTiming: every answer tells how long its request stood in the queue, if that is
// asked for: one that did not wait, one that waited, and one that was refused.
func serverTiming(e *env) {
	for _, asked := range []bool{true, false} {
		g := e.slots(1, forever)
		s := e.start(Options{Gate: g, ServerTiming: asked})
		told := func(n int, a answer) {
			want := ""
			if asked {
				want = gate.ServerTiming(s.decision(n).Waited)
			}
			equal(e, "Server-Timing", strings.Join(a.Header.Values("Server-Timing"), ","), want)
		}
		told(0, s.get(call{route: Ignore}))

		release := e.fill(g, 0)
		done := s.later(call{route: Ignore})
		e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
		release()
		told(1, s.wait(done))

		defer e.fill(g, 0)()
		done = s.later(call{route: Ignore})
		e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
		g.expire()
		told(2, s.wait(done))
		if s.decision(1).Waited == 0 || s.decision(2).Err == nil {
			e.Errorf("nobody waited, or was refused: %+v", s.decidedSoFar())
		}
	}
}
