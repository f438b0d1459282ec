package gatetest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// reporter is what a case tells its findings: a *testing.T, or the self-test's.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// env is one case over one protocol: where it reports, and what it has started.
type env struct {
	reporter
	Deviations
	suite    *suite
	protocol protocol
	pace     time.Duration   // how much longer short times are
	guard    *guard          // ends alive when nothing moves
	alive    context.Context // outlasts the case: what it leaves has to end, too
	ctx      context.Context // ends with the case
	cancel   context.CancelFunc
	servers  []*server
	conns    []net.Conn
	gates    []inUse
}

// inUse says what a gate has not got back, "" = nothing.
type inUse interface {
	left() string
	end() error // closes it; the error says what is wrong
}

// perform plays a scene over p and checks that nothing is left of it.
func (s *suite) perform(r reporter, c scene, p protocol, pace time.Duration) {
	r.Helper()
	e := &env{reporter: r, Deviations: s.Deviations, suite: s, protocol: p, pace: pace, guard: new(guard)}
	alive, hung := context.WithCancel(context.Background())
	defer hung()
	e.alive = alive
	e.ctx, e.cancel = context.WithCancel(alive)
	e.guard.watch(s.patience, hung)
	defer e.guard.stop()
	defer e.checkGoroutines(goroutines(s.Daemons))
	defer e.finish()
	c.play(e)
}

// finish ends clients, checks that the gates have everything back while the servers
// still run, and ends those.
func (e *env) finish() {
	for _, s := range e.servers {
		s.proceed()
	}
	e.cancel()
	for _, c := range e.conns {
		_ = c.Close()
	}
	for _, s := range e.servers {
		s.client.CloseIdleConnections()
		s.hangUp()
	}
	for _, g := range e.gates {
		if !e.Failed() && !e.poll(func() bool { return g.left() == "" }) { // what failed may hang still
			e.Errorf("after everything had ended: %s", g.left())
		}
	}
	for _, s := range e.servers {
		s.stop()
	}
	for _, g := range e.gates {
		if err := g.end(); err != nil && !e.Failed() {
			e.Errorf("closing the gate: %v", err)
		}
	}
}

// equal is an error unless got is want.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// declared notes that a fallback is asserted in place of the case.
func (e *env) declared(deviation string) {
	e.Helper()
	e.Logf("declared: %s; its fallback is asserted", deviation)
}

// prefetched is the most that a server may have read of a body before its gate is asked.
const prefetched = 16 << 10

// early is how much of a longer body a client has to send until the gate is asked.
func (e *env) early() int {
	if e.Prefetches {
		return 1000 + prefetched
	}
	return 1000
}

// sendsFirst reports whether a client that asks with Expect is let send before the gate
// is asked.
func (e *env) sendsFirst() bool {
	if e.BuffersBodies {
		e.declared("BuffersBodies")
	} else if e.Prefetches {
		e.declared("Prefetches")
	}
	return e.BuffersBodies || e.Prefetches
}

// goroutines returns the stacks of all goroutines by their ids, without daemons.
func goroutines(daemons []string) map[string]string {
	buf := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := map[string]string{}
next:
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		for _, d := range daemons {
			if strings.Contains(stack, d) {
				continue next
			}
		}
		id, _, _ := strings.Cut(stack, " [")
		all[id] = stack
	}
	return all
}

// checkGoroutines waits for the end of every goroutine that was not there before.
func (e *env) checkGoroutines(before map[string]string) {
	if e.Failed() || e.suite.together {
		return // what failed may hang still
	}
	var left []string
	gone := e.poll(func() bool {
		left = nil
		for id, stack := range goroutines(e.suite.Daemons) {
			if _, ok := before[id]; !ok {
				left = append(left, stack)
			}
		}
		return len(left) == 0
	})
	if !gone {
		e.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

// server is a running app with its clients.
type server struct {
	*script
	e        *env
	app      Server
	addr     string
	url      string
	client   *http.Client
	listener *countingListener
	log      *safeBuffer
	dials    atomic.Int64 // connections that client has opened
	ended    atomic.Int64 // those that the server has ended, or said it would
	stopOnce sync.Once

	mu          sync.Mutex
	decisions   []Decision
	clientConns []net.Conn
	over        bool // client opens no more
}

// setup changes what a case's app shares with it.
type setup func(*script)

// start starts the app that o describes.
func (e *env) start(o Options, with ...setup) *server {
	e.Helper()
	l, err := new(net.ListenConfig).Listen(e.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatalf("no loopback to listen on: %v", err)
	}
	s := &server{
		e: e, script: newScript(e.Errorf, &e.guard.moves, e.Deviations), addr: l.Addr().String(),
		listener: &countingListener{Listener: l, moves: &e.guard.moves}, log: new(safeBuffer),
	}
	s.gate = o.Gate
	for _, w := range with {
		w(s.script)
	}
	o.script, o.ErrorLog = s.script, s.log.logger()
	if o.OnDecision == nil {
		o.OnDecision = s.decided
	}
	s.url = "http://" + s.addr
	if e.protocol == http2 {
		s.url, o.TLS = "https://"+s.addr, e.suite.identity.server()
	}
	s.client = s.newClient()
	s.app = e.suite.Start(s.listener, o)
	e.servers = append(e.servers, s)
	return s
}

// stop closes the server and waits for the end of its connections.
func (s *server) stop() {
	s.stopOnce.Do(func() {
		if err := s.app.Close(); err != nil {
			s.e.Errorf("closing the server: %v", err)
		}
		if !s.e.Failed() && !s.e.poll(func() bool { return s.listener.open.Load() == 0 }) {
			s.e.Errorf("%d connections outlive their server", s.listener.open.Load())
		}
	})
}

func (s *server) decided(d Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decisions = append(s.decisions, d)
}

func (s *server) decidedSoFar() []Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Decision(nil), s.decisions...)
}

// decision waits for the nth decision, counted from 0.
func (s *server) decision(n int) Decision {
	s.e.Helper()
	s.e.await(fmt.Sprintf("decision %d", n), func() bool { return len(s.decidedSoFar()) > n })
	return s.decidedSoFar()[n]
}

// silent is an error if the server has complained about anything but connections on
// which no request has come.
func (s *server) silent() {
	s.e.Helper()
	for line := range strings.Lines(s.log.String()) {
		if !strings.Contains(line, "TLS handshake error") && !strings.Contains(line, "error reading preface") {
			s.e.Errorf("the server complains: %s", line)
		}
	}
}
