package gatetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A case waits for conditions, for as long as anything moves. What must happen within a
// time, because the server's own timeouts are the case, is given more of it when the
// case fails: a machine may be slow, and an adapter that is wrong fails at every pace.

// look is how often the guard looks whether anything has moved.
const look = 20 * time.Millisecond

// guard ends a case in which nothing moves any more.
type guard struct {
	moves atomic.Int64 // bytes on connections, reads of handlers, and whatever else is no standstill
	done  chan struct{}
	ended sync.WaitGroup
}

// watch calls hung when nothing has moved for patience, or after 15 times that in all.
// It counts its own looks, not time: a process that does not get to run does not hang.
func (g *guard) watch(patience time.Duration, hung context.CancelFunc) {
	g.done = make(chan struct{})
	g.ended.Go(func() {
		tick := time.NewTicker(look)
		defer tick.Stop()
		most, before := int(patience/look), int64(0)
		for still, all := 0, 0; still < most && all < 15*most; all++ {
			select {
			case <-g.done:
				return
			case <-tick.C:
			}
			still++
			if n := g.moves.Load(); n != before {
				before, still = n, 0
			}
		}
		hung()
	})
}

// stop ends the watch.
func (g *guard) stop() {
	close(g.done)
	g.ended.Wait()
}

// poll waits until cond holds, and reports whether it came to that.
func (e *env) poll(cond func() bool) bool {
	tick := time.NewTicker(e.suite.tick)
	defer tick.Stop()
	for ; ; <-tick.C {
		hangs := e.alive.Err() != nil // asked first: cond has the last word
		if cond() {
			return true
		}
		if hangs {
			return false
		}
	}
}

// await waits until cond holds, or ends the case.
func (e *env) await(what string, cond func() bool) {
	e.Helper()
	if !e.poll(cond) {
		e.Fatalf("waited in vain: %s", what)
	}
}

// pass lets d go by. It is for what only time can show on a real socket.
func (e *env) pass(d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-end.C:
			return
		case <-tick.C:
			e.guard.moves.Add(1)
		}
	}
}

// short is a time that a case cannot have too long, and a slow machine not too short.
func (e *env) short(d time.Duration) time.Duration { return d * e.pace }

// paces are the env.pace of one attempt each.
var paces = [...]time.Duration{1, 3, 9} //nolint:gochecknoglobals // never written

// run performs a scene as a subtest.
func (s *suite) run(t *testing.T, c scene, p protocol) {
	t.Helper()
	pace := paces[0]
	for _, longer := range paces[1:] {
		if !c.timed {
			break // its failure is no matter of time
		}
		r := s.judge(c, p, pace)
		if text := r.text(); !r.Failed() {
			if text != "" {
				t.Log(text)
			}
			return
		}
		t.Logf("it failed with times for a quick machine, %d x; once more with %d x:\n%s", pace, longer, r.text())
		pace = longer
	}
	s.perform(t, c, p, pace)
}

// judge performs a scene and returns what it had to say.
func (s *suite) judge(c scene, p protocol, pace time.Duration) *recorder {
	r, done := new(recorder), make(chan struct{})
	go func() {
		defer close(done)
		s.perform(r, c, p, pace)
	}()
	<-done
	return r
}

// recorder is a reporter that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	failed bool
	lines  []string
}

func (r *recorder) note(failed bool, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Helper does nothing: no line is named.
func (r *recorder) Helper() {}

// Logf notes what is no failure.
func (r *recorder) Logf(format string, args ...any) { r.note(false, format, args...) }

// Errorf notes a failure.
func (r *recorder) Errorf(format string, args ...any) { r.note(true, format, args...) }

// Fatalf notes a failure and ends the goroutine.
func (r *recorder) Fatalf(format string, args ...any) {
	r.note(true, format, args...)
	runtime.Goexit()
}

// Failed reports whether there was a failure.
func (r *recorder) Failed() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}
