package gatetest

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// place is where panics are recovered.
type place int

const (
	nowhere place = iota
	outside
	inside
)

// script is what a case and the handlers of its app share.
type script struct {
	errorf     func(format string, args ...any)
	moves      *atomic.Int64 // of the case's guard
	deviations Deviations

	// What the case has set before the app starts.
	gate     gate.Gate // as in Options
	second   gate.Gate // for Nested
	inflater *admission.Budget
	recovery place
	timeout  time.Duration // of an http.TimeoutHandler around the app; 0 = none

	events    chan string   // each is an event of Events
	letGo     chan struct{} // closed: what holds goes on
	leftovers chan any      // panics of the readers that were left behind, nil where there is none
	failed    atomic.Pointer[gate.Rejection]

	most    atomic.Int64 // bytes of one body that a handler has read
	running atomic.Int64 // handlers
	peak    atomic.Int64 // most handlers at once

	goOnce sync.Once

	mu      sync.Mutex
	entered map[Route]int
	panics  []any
	writer  http.ResponseWriter // that of the last request, as the server made it
}

func newScript(errorf func(string, ...any), moves *atomic.Int64, d Deviations) *script {
	return &script{
		errorf: errorf, moves: moves, deviations: d, events: make(chan string), letGo: make(chan struct{}),
		leftovers: make(chan any, 10), entered: map[Route]int{},
	}
}

// proceed lets go on whatever holds, now and from now on.
func (c *script) proceed() { c.goOnce.Do(func() { close(c.letGo) }) }

func (c *script) enter(r Route) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entered[r]++
	if n := c.running.Add(1); n > c.peak.Load() {
		c.peak.Store(n)
	}
}

// seen is how many requests have reached the handler of r.
func (c *script) seen(r Route) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entered[r]
}

func (c *script) caught() []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]any(nil), c.panics...)
}

// Recover is the app's recovery. The outermost middleware defers it for each
// request; answer must answer 500. It lets pass what the case wants to pass.
func (o Options) Recover(answer func()) {
	if o.script.recovery != outside {
		return
	}
	if v := recover(); v != nil {
		o.script.met(v, answer)
	}
}

func (c *script) recoverInside(answer func()) {
	if c.recovery != inside {
		return
	}
	if v := recover(); v != nil {
		c.met(v, answer)
	}
}

func (c *script) met(v any, answer func()) {
	c.mu.Lock()
	c.panics = append(c.panics, v)
	c.mu.Unlock()
	if v == http.ErrAbortHandler && !c.deviations.PanicsEndProcess { //nolint:errorlint // the very value is what must pass
		panic(v)
	}
	answer()
}

func put(m map[string]int, key string) { m[key] = 1 }

// blowUp ends the handler in the given way.
func blowUp(how string) {
	switch how {
	case "abort":
		panic(http.ErrAbortHandler)
	case "nil map":
		put(nil, how)
	case "goexit":
		runtime.Goexit()
	}
	panic("boom")
}
