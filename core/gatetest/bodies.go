package gatetest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// bodyScenes: what is read of a body, when, and under which charge.
func bodyScenes() []scene {
	return []scene{
		first("T17_A27_expect_refused_before_the_body", expectRefused),
		first("T17_expect_admitted_but_unread", expectUnread),
		first("A27_continue_after_admission", continueAfter),
		both("A11_nothing_is_read_before_the_gate", nothingReadBefore),
		both("A12_A1_budget_holds", budgetHolds),
		both("A3_what_never_fits_is_refused_at_once", neverFits),
		both("T20_T21_A2_refused_while_reading", refusedWhileReading),
		both("T28_A24_inflating_stops_at_the_cap", inflatingStops),
		first("A2_false_lengths", falseLengths),
		both("T22_no_body_stays_none", noBodyStays),
		both("bytes_come_back_at_the_first_byte", backAtFirstByte),
		both("full_budget_reads_to_the_end", fullBudgetReads),
	}
}

// expectRefused: a client that asks first is refused before it has sent anything.
func expectRefused(e *env) {
	b := e.budget(func(c *admission.Config) { c.QueueTimeout = 0 })
	defer e.fill(b, 8*mib)()
	s := e.start(Options{Gate: b})
	sizes := []int{1000, mib}
	var conns []*rawConn
	for _, size := range sizes {
		c := s.dial()
		c.say("POST "+string(Echo), "Expect: 100-continue", "Content-Length: "+strconv.Itoa(size))
		conns = append(conns, c)
	}
	for i, c := range conns {
		if e.sendsFirst() {
			equal(e, "first answer", c.answer().StatusCode, http.StatusContinue)
			c.pour(string(blob(sizes[i])))
			equal(e, "second answer", c.answer().StatusCode, http.StatusServiceUnavailable)
			continue
		}
		a := c.answer()
		equal(e, "first answer", a.StatusCode, http.StatusServiceUnavailable)
		equal(e, "Connection: close", a.Close, true)
		equal(e, "after the answer", c.rest(), "")
	}
	equal(e, "requests at the handler", s.seen(Echo), 0)
}

// expectUnread: with its body under a lease, a handler that answers without reading
// does so at once, and so does whoever turns the request away in between. A body that
// was replaced in place makes net/http wait for it here, until some deadline or for ever.
func expectUnread(e *env) {
	s := e.start(Options{Gate: e.budget(nil), Auth: tenantAuth})
	for _, size := range []int{1000, mib} {
		for status, tenant := range map[int]string{http.StatusOK: "t", http.StatusUnauthorized: ""} {
			c := s.dial()
			c.say("POST "+string(Ignore), "Expect: 100-continue", "Content-Length: "+strconv.Itoa(size), tenantHeader+": "+tenant)
			if e.sendsFirst() {
				equal(e, "first answer", c.answer().StatusCode, http.StatusContinue)
				c.pour(string(blob(size)))
			}
			equal(e, "answer", c.answer().StatusCode, status)
		}
	}
	if !e.BuffersBodies && !e.Prefetches {
		equal(e, "deadlines that somebody waited for before an answer", s.listener.stuck.Load(), 0)
	}
}

// continueAfter: 100 Continue is sent after admission, and nothing before it.
func continueAfter(e *env) {
	g := e.slots(1, forever)
	release := e.fill(g, 0)
	s := e.start(Options{Gate: g})
	body := blob(100_000)
	c := s.dial()
	c.say("POST "+string(Echo), "Expect: 100-continue", "Content-Length: "+strconv.Itoa(len(body)))
	if e.sendsFirst() {
		equal(e, "first answer", c.answer().StatusCode, http.StatusContinue)
		c.pour(string(body))
		e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
		release()
	} else {
		e.await("the request stands in the queue", func() bool { return g.queued() == 1 })
		equal(e, "bytes sent to a client in the queue", s.listener.out.Load(), 0)
		release()
		equal(e, "first answer", c.answer().StatusCode, http.StatusContinue)
		c.pour(string(body))
	}
	equal(e, "body", c.answer().text, digestOf(body))
}

// nothingReadBefore: a body that is on its way stays out of memory while its request
// waits, but for the server's own buffer. Where it does not, it is charged as queued.
func nothingReadBefore(e *env) {
	const size, most = 3 * mib / 2, 2*streamWindow + 16<<10
	b := e.budget(nil)
	defer e.fill(b, 8*mib)()
	read := make(chan int64, 1) // by the time of the decision
	var s *server
	s = e.start(Options{Gate: b, OnDecision: func(Decision) { read <- s.listener.in.Load() }})
	done := s.later(call{route: Echo, body: reader(blob(size)), length: size})
	e.await("the request waits", func() bool { return b.Snapshot().Waiting == 1 })
	queued := b.Snapshot().QueuedBytes
	e.pass(100 * time.Millisecond) // in which somebody might read
	b.Close()                      // the wait is over
	n := <-read
	o := <-done // a client that sends without looking may not get to read it
	if o.err == nil {
		equal(e, "marker", o.Header.Get(gate.MarkerHeader), string(gate.ShuttingDown))
	} else if !errors.Is(o.err, errTooSlow) {
		e.Errorf("no answer: %v", o.err)
	}
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		equal(e, "bytes of the body that wait in memory", queued, size)
		return
	}
	if e.Prefetches {
		e.declared("Prefetches")
		equal(e, "bytes that are said to wait in memory", queued > 0 && queued <= prefetched, true)
	} else {
		equal(e, "bytes that are said to wait in memory", queued, 0)
	}
	if n > most {
		e.Errorf("%d bytes were read before the gate had decided, at most %d are the server's own", n, most)
	}
}

// budgetHolds: of bodies that do not fit together as many are read as fit, and the
// others one after the other, whole.
func budgetHolds(e *env) {
	const fit, more, size = 4, 3, mib / 4
	b := e.budget(nil)
	defer e.fill(b, 8*mib-fit*size)()
	s := e.start(Options{Gate: b})
	body := blob(size)
	for _, route := range []Route{Watch, Echo} {
		var all []<-chan outcome
		for range fit + more {
			all = append(all, s.later(call{route: route, body: reader(body), length: size}))
		}
		if route == Watch { // all hold on to what they have read
			e.await("some run and some wait", func() bool { return s.seen(Watch) == fit && b.Snapshot().Waiting == more })
			equal(e, "bytes in flight", b.Snapshot().InflightBytes, 8*mib)
			s.proceed()
		}
		for _, done := range all {
			a := s.wait(done)
			equal(e, "status", a.StatusCode, http.StatusOK)
			if route == Echo {
				equal(e, "body", a.text, digestOf(body))
			}
		}
	}
	if n := s.peak.Load(); n > fit {
		e.Errorf("%d handlers were at work at once, %d fit", n, fit)
	}
	s.silent()
}

// neverFits: 413 without a Retry-After, on a full budget too, and nobody waits for it.
func neverFits(e *env) {
	b := e.budget(func(c *admission.Config) { c.HardMaxBodyBytes = 10 * mib })
	defer e.fill(b, 8*mib)()
	s := e.start(Options{Gate: b})
	for size, reason := range map[int64]gate.Reason{11 * mib: gate.PayloadTooLarge, 9 * mib: gate.BodyExceedsBudget} {
		a := s.uploaded(call{route: Echo, length: size}, blob(int(size)))
		equal(e, "status", a.StatusCode, http.StatusRequestEntityTooLarge)
		equal(e, "marker", a.Header.Get(gate.MarkerHeader), string(reason))
		equal(e, "Retry-After", a.Header.Get("Retry-After"), "")
	}
	equal(e, "requests that waited", b.Snapshot().Queued, 0)
}

// refusedWhileReading: a body of unknown length that breaks the cap on the way. The
// handler gets no byte more, its error is answered, and on HTTP/1 the connection ends.
func refusedWhileReading(e *env) {
	const limit = mib
	s := e.start(Options{Gate: e.budget(func(c *admission.Config) { c.HardMaxBodyBytes = limit })})
	for range 5 {
		a := s.uploaded(call{route: Echo}, blob(2*limit))
		equal(e, "status", a.StatusCode, http.StatusRequestEntityTooLarge)
		equal(e, "marker", a.Header.Get(gate.MarkerHeader), string(gate.PayloadTooLarge))
		equal(e, "Retry-After", a.Header.Get("Retry-After"), "")
		if !json.Valid([]byte(a.text)) {
			e.Errorf("the answer is no JSON, or more than one: %q", a.text)
		}
		if e.protocol == http2 {
			s.kept()
		}
		if e.BuffersBodies {
			e.declared("BuffersBodies")
			continue
		}
		if n := s.most.Load(); n > limit {
			e.Errorf("a handler was given %d bytes, the cap is %d", n, limit)
		}
		equal(e, "Connection: close", a.Close, e.protocol == http1)
	}
	body := blob(limit) // what just fits is read whole
	equal(e, "body", s.get(call{route: Echo, body: reader(body)}).text, digestOf(body))
	s.silent()
}

// inflatingStops: of a bomb no more is inflated than the cap, by several members neither,
// its refusal is answered, and the account of decoded bytes is empty again.
func inflatingStops(e *env) {
	const limit = mib / 4
	b := e.budget(func(c *admission.Config) { c.MaxDecodedBytes = limit })
	s := e.start(Options{Gate: b}, func(c *script) { c.inflater = b })
	half, fits := deflated(make([]byte, limit/2+1)), blob(limit/2)
	for _, bomb := range [][]byte{deflated(make([]byte, 10*limit)), append(half[:len(half):len(half)], half...)} {
		a := s.uploaded(call{route: Inflate, length: int64(len(bomb))}, bomb)
		equal(e, "status", a.StatusCode, http.StatusRequestEntityTooLarge)
		equal(e, "marker", a.Header.Get(gate.MarkerHeader), string(gate.PayloadTooLarge))
		if n := s.most.Load(); n > limit {
			e.Errorf("a handler was given %d bytes, the cap is %d", n, limit)
		}
		e.await("the decoded bytes come back", func() bool { return b.Snapshot().DecodedBytes == 0 })
	}
	equal(e, "body that fits", s.uploaded(call{route: Inflate}, deflated(fits)).text, digestOf(fits))
}

// deflated is b as gzip.
func deflated(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// falseLengths: more than was announced belongs to no body, and what is no length is
// no request.
func falseLengths(e *env) {
	b := e.budget(nil)
	s := e.start(Options{Gate: b})
	c := s.dial()
	c.say("POST "+string(Echo), "Content-Length: 10")
	c.pour(strings.Repeat("x", 2*mib))
	equal(e, "body", c.answer().text, digestOf(bytes.Repeat([]byte("x"), 10)))
	c.rest()
	admitted := b.Snapshot().Admitted
	for _, length := range []string{"-5", "abc", "99999999999999999999"} {
		c := s.dial()
		c.say("POST "+string(Echo), "Content-Length: "+length)
		if rest := c.rest(); rest != "" && !strings.HasPrefix(rest, "HTTP/1.1 4") {
			e.Errorf("Content-Length: %s is answered with %q", length, rest)
		}
	}
	equal(e, "leases for lengths that are none", b.Snapshot().Admitted-admitted, 0)
}

// noBodyStays: what is no body is not put under a lease, and looks to the handler as
// it does without a gate.
func noBodyStays(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g, Skip: everySecond()})
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost, http.MethodOptions} {
		without := s.inspected(call{method: method, route: Inspect})
		with := s.inspected(call{method: method, route: Inspect})
		equal(e, method+": a lease behind the gate", with.Live && !without.Live, true)
		equal(e, method+": the body behind the gate", with.Body, without.Body)
	}
	for _, q := range g.requests() {
		equal(e, "bytes that the gate is told of "+q.Method, q.Bytes, 0)
	}
	equal(e, "bodies put under a lease", g.wrapped(), 0)
	s.get(call{route: Echo, body: reader(blob(10)), length: 10})
	s.get(call{route: Echo, body: reader(blob(10)), length: 10})
	equal(e, "bodies put under a lease", g.wrapped(), 1)
}

// backAtFirstByte: the context that the handler gets tells the gate of back ends.
func backAtFirstByte(e *env) {
	b := e.budget(nil)
	s := e.start(Options{Gate: b})
	done := s.later(call{route: Observed, body: reader(blob(mib)), length: mib})
	e.await("the bytes come back while the handler runs", func() bool {
		return s.seen(Observed) == 1 && b.Snapshot().InflightBytes == 0
	})
	equal(e, "handlers that run", s.running.Load(), 1)
	s.proceed()
	equal(e, "status", s.wait(done).StatusCode, http.StatusOK)
}

// fullBudgetReads: the end of a body costs nothing, announced or not.
func fullBudgetReads(e *env) {
	b := e.budget(nil)
	s := e.start(Options{Gate: b})
	for _, length := range []int64{0, 1000} {
		room := int64(1000)
		if length == 0 {
			room = 64 << 10 // what an unknown length begins with
		}
		giveBack := e.fill(b, 8*mib-room)
		body := blob(int(room))
		a := s.get(call{route: Echo, body: reader(body), length: length})
		equal(e, fmt.Sprint("status of a body of length ", length), a.StatusCode, http.StatusOK)
		equal(e, "body", a.text, digestOf(body))
		giveBack()
	}
}
