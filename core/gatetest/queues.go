package gatetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// queueScenes: whoever waits, leaves or is let in late.
func queueScenes() []scene {
	return []scene{
		both("T11_T12_T13_client_gone_without_a_body", goneWithoutBody),
		both("T11_client_gone_with_an_unread_body", goneUnread),
		both("T11_client_gone_while_the_handler_asks", goneInHandler),
		first("T11_nothing_written_to_who_left", halfClosed),
		both("H8_refused_as_the_client_leaves", refusedAsLeaving),
		timed("T14_queue_time_is_not_the_servers", queueTime),
		both("T15_F21_shutdown_with_waiters", shutdown),
		both("T16_who_waits_delays_nobody_else", delaysNobody),
		both("decisions_are_told_once", decisionsTold),
		both("server_timing_tells_the_wait", serverTiming),
	}
}

// goneWithoutBody: a waiter without a body leaves the queue when its client leaves.
func goneWithoutBody(e *env) {
	g, want := e.slots(0, forever), gate.Canceled
	s := e.start(Options{Gate: g})
	s.leaveWaiting(call{route: Hold}, func() bool { return g.queued() == 1 })
	if e.NoDisconnectSignal {
		e.declared("NoDisconnectSignal")
		want = e.boundEnds(g)
	}
	d := s.decision(0)
	if !errors.Is(d.Err, want) {
		e.Errorf("the waiter left with %v, want %s", d.Err, want)
	}
	equal(e, "waiters", g.queued(), 0)
	equal(e, "requests at the handler", s.seen(Hold), 0)
}

// boundEnds lets whoever waits in g reach its bound, some time after the client has left,
// and returns why it is then refused.
func (e *env) boundEnds(g *slots) gate.Reason {
	e.pass(e.short(300 * time.Millisecond)) // in which it would be told, if it were
	g.expire()
	return gate.QueueTimeout
}

// leaveWaiting sends c and leaves when it waits.
func (s *server) leaveWaiting(c call, waits func() bool) {
	s.e.Helper()
	ctx, leave := context.WithCancel(s.e.ctx)
	defer leave()
	c.ctx = ctx
	done := s.later(c)
	s.e.await("the request stands in the queue", waits)
	leave()
	if o := <-done; o.err == nil {
		s.e.Errorf("an answer came while the request was to wait: %d %s", o.StatusCode, o.text)
	}
}

// goneUnread: with the body unread, HTTP/2 tells as soon as the client leaves, and
// HTTP/1 may not tell: then the gate's own bound ends the wait.
func goneUnread(e *env) {
	g := e.slots(0, forever)
	s := e.start(Options{Gate: g})
	waits := func() bool { return g.queued() == 1 }
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		s.leaveWaiting(call{route: Hold, body: reader(blob(mib)), length: mib}, waits)
	} else {
		s.leaveWaiting(call{route: Hold, body: pause(blob(e.early()), e.early(), nil), length: mib}, waits)
	}
	told := e.protocol == http2 && !e.NoDisconnectSignal
	if !told {
		e.boundEnds(g)
	}
	d := s.decision(0)
	if !errors.Is(d.Err, gate.Canceled) && (told || !errors.Is(d.Err, gate.QueueTimeout)) {
		e.Errorf("the waiter left with %v", d.Err)
	}
	equal(e, "requests at the handler", s.seen(Hold), 0)
}

// goneInHandler: a handler that has read its body and waits for a second gate.
func goneInHandler(e *env) {
	g, second := e.budget(nil), e.slots(0, forever)
	s := e.start(Options{Gate: g}, func(c *script) { c.second = second })
	s.leaveWaiting(call{route: Nested, body: reader(blob(1000)), length: 1000}, func() bool { return second.queued() == 1 })
	if e.NoDisconnectSignal {
		e.declared("NoDisconnectSignal")
		e.boundEnds(second)
	}
	e.await("the waiter leaves", func() bool { return second.queued() == 0 })
	e.await("the first lease comes back", func() bool { return g.Snapshot().Inflight == 0 })
}

// halfClosed: a client that has closed its sending side while it waits counts as gone
// and must not read a success into the end.
func halfClosed(e *env) {
	g := e.slots(0, forever)
	s := e.start(Options{Gate: g})
	c := s.dial()
	c.say("GET " + string(Ignore))
	e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
	if err := c.CloseWrite(); err != nil {
		e.Fatalf("half a close: %v", err)
	}
	if e.NoDisconnectSignal {
		e.declared("NoDisconnectSignal")
		e.boundEnds(g)
		equal(e, "status at the gate's bound", c.answer().StatusCode, http.StatusServiceUnavailable)
		return
	}
	if rest := c.rest(); rest != "" {
		e.Errorf("written to who has left: %q", rest)
	}
	s.silent()
}

// refusedAsLeaving: the gate's refusal and the client's leaving meet.
func refusedAsLeaving(e *env) {
	g := e.slots(0, 20*time.Millisecond)
	s := e.start(Options{Gate: g})
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, leave := context.WithTimeout(e.ctx, time.Duration(10+i%40)*time.Millisecond)
			defer leave()
			if i%3 == 0 {
				ctx = e.ctx // this one stays
			}
			if a, err := s.send(call{route: Hold, ctx: ctx}); err == nil && a.StatusCode != http.StatusServiceUnavailable {
				e.Errorf("answered with %d", a.StatusCode)
			}
		}()
	}
	wg.Wait()
	e.await("all have left", func() bool { return g.queued() == 0 })
	equal(e, "requests at the handler", s.seen(Hold), 0)
	s.silent()
}

// queueTime: a wait longer than the server's timeouts leaves the handler all of them,
// and a refusal after such a wait reaches its client.
func queueTime(e *env) {
	timeout, wait := e.short(time.Second), e.short(11*time.Second/10)
	g, none := e.slots(1, forever), e.slots(0, wait)
	release := e.fill(g, 0)
	s := e.start(Options{Gate: g, ReadTimeout: timeout, WriteTimeout: timeout})
	refused := e.start(Options{Gate: none, WriteTimeout: timeout})
	refusal := refused.later(call{route: Hold})
	body, sendOn := blob(100_000), make(chan struct{})
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		close(sendOn)
	}
	late := s.later(call{
		route: Echo, length: int64(len(body)),
		body: pause(body, e.early(), sendOn),
	})
	e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
	e.pass(wait)
	release()
	e.await("the request is admitted", func() bool { return s.seen(Echo) == 1 })
	if !e.BuffersBodies {
		close(sendOn)
	}
	a := s.wait(late)
	equal(e, "status after the wait", a.StatusCode, http.StatusOK)
	equal(e, "body after the wait", a.text, digestOf(body))
	a = s.wait(refusal)
	equal(e, "marker of a refusal after the wait", a.Header.Get(gate.MarkerHeader), string(gate.QueueTimeout))
}

// shutdown: closing the gate refuses whoever waits at once, while what runs goes on
// to its end, and the server with it.
func shutdown(e *env) {
	b := e.budget(nil)
	s := e.start(Options{Gate: b})
	resp, r := s.openEvents(e.ctx)
	defer resp.Body.Close()
	others := e.fill(b, 7*mib)
	defer others()
	running := s.later(call{route: Observed, body: reader(blob(mib)), length: mib})
	e.await("the upload holds on", func() bool { return s.seen(Observed) == 1 && b.Snapshot().InflightBytes == 7*mib })
	giveBack := e.fill(b, mib)
	defer giveBack()
	waiting := s.later(call{route: Hold, body: reader(blob(mib)), length: mib})
	e.await("a request waits", func() bool { return b.Snapshot().Waiting == 1 })

	b.Close()
	for _, a := range []answer{s.wait(waiting), s.get(call{route: Hold, body: reader(blob(10)), length: 10})} {
		equal(e, "status of a waiter", a.StatusCode, http.StatusServiceUnavailable)
		equal(e, "marker of a waiter", a.Header.Get(gate.MarkerHeader), string(gate.ShuttingDown))
	}
	down := make(chan error, 1)
	go func() { down <- s.app.Shutdown(e.ctx) }()
	s.event("last")
	if line, err := r.ReadString('\n'); err != nil || line != "data: last\n" {
		e.Errorf("the stream in a shutdown: %q %v", line, err)
	}
	s.proceed()
	if _, err := io.Copy(io.Discard, r); err != nil {
		e.Errorf("the end of the stream in a shutdown: %v", err)
	}
	equal(e, "status of what ran", s.wait(running).StatusCode, http.StatusOK)
	s.client.CloseIdleConnections()
	if err := <-down; err != nil {
		e.Errorf("the server does not shut down: %v", err)
	}
	giveBack()
	others()
	if err := b.Drain(e.ctx); err != nil {
		e.Errorf("the gate does not drain: %v", err)
	}
}

// delaysNobody: while one tenant's requests wait, with bodies and without, another's get
// in one after the other, on the same connection too.
func delaysNobody(e *env) {
	const waiting, served = 6, 20
	g := &parted{full: e.slots(0, forever), free: e.slots(1, 0)}
	s := e.start(Options{Gate: g, Flow: func(header func(string) string) string { return header(tenantHeader) }})
	as := func(tenant string, i int) call {
		c := call{route: Ignore, header: map[string]string{tenantHeader: tenant}}
		if i%2 == 0 {
			c.body, c.length = reader(blob(1000)), 1000
		}
		return c
	}
	var refused []<-chan outcome
	for i := range waiting {
		refused = append(refused, s.later(as("full", i)))
	}
	e.await("all of one tenant's requests wait", func() bool { return g.full.queued() == waiting })
	for i := range served {
		equal(e, "status of the other tenant", s.get(as("free", i)).StatusCode, http.StatusOK)
		equal(e, "requests that still wait", g.full.queued(), waiting)
	}
	g.full.expire()
	for _, done := range refused {
		equal(e, "status of who has waited", s.wait(done).StatusCode, http.StatusServiceUnavailable)
	}
}

// parted is a gate with a part of its own for the flow "full".
type parted struct{ full, free *slots }

// Acquire implements gate.Gate.
func (p *parted) Acquire(ctx context.Context, r gate.Request) (gate.Lease, error) {
	if r.Flow == "full" {
		return p.full.Acquire(ctx, r)
	}
	return p.free.Acquire(ctx, r)
}

// decisionsTold: the hook sees each decision once, with its wait and its reason, and
// nothing of who is not put to the gate.
func decisionsTold(e *env) {
	g := e.slots(1, forever)
	release := e.fill(g, 0)
	s := e.start(Options{Gate: g, Skip: func(path string) bool { return path == string(Inspect) }})
	equal(e, "status past the gate", s.get(call{route: Inspect}).StatusCode, http.StatusOK)
	done := s.later(call{route: Ignore})
	e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
	release()
	equal(e, "status", s.wait(done).StatusCode, http.StatusOK)
	if d := s.decision(0); d.Err != nil || d.Waited <= 0 {
		e.Errorf("admitted after a wait, told as %+v", d)
	}
	e.await("the slot comes back", func() bool { return g.inUse() == 0 })
	equal(e, "status", s.get(call{route: Ignore}).StatusCode, http.StatusOK)
	if d := s.decision(1); d.Err != nil || d.Waited != 0 {
		e.Errorf("admitted at once, told as %+v", d)
	}
	equal(e, "decisions", len(s.decidedSoFar()), 2)

	s = e.start(Options{Gate: e.slots(0, 50*time.Millisecond)})
	equal(e, "status", s.get(call{route: Ignore}).StatusCode, http.StatusServiceUnavailable)
	if d := s.decision(0); !errors.Is(d.Err, gate.QueueTimeout) || d.Waited <= 0 {
		e.Errorf("refused after a wait, told as %+v", d)
	}
	equal(e, "decisions", len(s.decidedSoFar()), 1)
}
