package gatetest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// uploadScenes: clients that are refused in the middle of an upload.
func uploadScenes() []scene {
	return []scene{
		both("T18_slow_upload_is_refused_at_once", slowUpload),
		both("A25_T19_T24_refusal_reaches_the_uploader", refusalReaches),
		first("A25_K9_linger_is_bounded", lingerBounded),
		first("T23_rest_of_a_body_is_no_request", noSmuggling),
		both("refusal_without_a_body_keeps_the_connection", keepsConnection),
		both("refusal_of_a_read_body_keeps_the_connection", keepsAfterReading),
		first("T30_lying_length", lyingLength),
		first("K10_clients_that_break_off", breakOff),
		both("T11_K10_connection_lost", connectionLost),
	}
}

// slowUpload: the refusal does not wait for a body that does not come. On HTTP/1 it
// closes the connection, on HTTP/2 never.
func slowUpload(e *env) {
	const times, size = 10, 200_000
	s := e.start(Options{Gate: e.slots(0, 0)})
	for range times {
		body, sendOn := blob(size), make(chan struct{})
		c := call{route: Echo, length: size, body: pause(body, size/2, sendOn)}
		if e.BuffersBodies {
			close(sendOn)
		}
		a := s.get(c)
		equal(e, "status", a.StatusCode, http.StatusServiceUnavailable)
		if e.BuffersBodies {
			continue
		}
		close(sendOn) // only now can the upload go on
		equal(e, "Connection: close", a.Close, e.protocol == http1)
	}
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		equal(e, "requests that the gate refused", len(s.decidedSoFar()), times)
	}
	if e.protocol == http2 {
		s.kept()
	}
	s.silent()
}

// refusalReaches: of clients that send on without looking, 99 in 100 read the answer.
func refusalReaches(e *env) {
	tries, size := 50, 4*mib
	if e.BuffersBodies { // which reads them all
		e.declared("BuffersBodies")
		size = mib / 2
	}
	s := e.start(Options{Gate: e.slots(0, 0)})
	body := blob(size)
	var reached atomic.Int64
	var wg sync.WaitGroup
	turns := make(chan struct{}, 4)
	for range tries {
		for _, c := range []call{
			{length: int64(size)}, // announced
			{},                    // chunked
			{length: int64(size), header: map[string]string{"Expect": "100-continue"}}, // and not waited for
		} {
			c.route = Echo
			turns <- struct{}{}
			wg.Add(1)
			go func() {
				defer func() { <-turns; wg.Done() }()
				a, err := s.upload(c, body)
				if err == nil && a.StatusCode == http.StatusServiceUnavailable && a.Header.Get(gate.MarkerHeader) != "" {
					reached.Add(1)
				}
			}()
		}
	}
	wg.Wait()
	if n := int(reached.Load()); n < 3*tries*99/100 {
		e.Errorf("%d of %d clients have read their refusal", n, 3*tries)
	}
	equal(e, "requests at the handler", s.seen(Echo), 0)
	s.silent()
}

// lingerBounded: a body that nobody reads and that does not come does not keep its
// connection, whoever has answered.
func lingerBounded(e *env) {
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		lyingLength(e)
		return
	}
	more := e.early() - 1000
	length := "Content-Length: " + strconv.Itoa(4096+more)
	rej := refusal(gate.SlowBody, nil)
	withFail := func(c *script) { c.failed.Store(rej) }
	var conns []*rawConn
	for _, s := range []*server{
		e.start(Options{Gate: e.slots(0, 0)}), e.start(Options{Gate: e.slots(1, 0)}, withFail),
	} {
		conns = append(conns, s.dial())
		conns[len(conns)-1].say("POST "+string(Fail), length, argHeader+": unread")
	}
	admitted := e.start(Options{Gate: e.slots(1, 0)}).dial()
	admitted.say("POST "+string(Ignore), length)
	for _, c := range append(conns, admitted) {
		c.write(strings.Repeat("x", 44+more))
	}
	for _, c := range conns {
		a := c.answer()
		equal(e, "marker set", a.Header.Get(gate.MarkerHeader) != "", true)
		equal(e, "Connection: close", a.Close, true)
		equal(e, "after the answer", c.rest(), "") // and it ends
	}
	equal(e, "status of who was admitted", admitted.answer().StatusCode, http.StatusOK)
	equal(e, "after the answer", admitted.rest(), "")
}

// noSmuggling: what follows in a refused body is never taken for a request.
func noSmuggling(e *env) {
	body := strings.Repeat("x", 8192) + head("GET "+string(Ignore))
	for _, message := range []string{
		head("POST "+string(Echo), "Content-Length: "+strconv.Itoa(len(body))) + body,
		head("POST "+string(Echo), "Transfer-Encoding: chunked") + chunked(body, 8192),
		head("POST "+string(Echo), "Transfer-Encoding: chunked") + chunked(body, 100),
	} {
		g := e.slots(0, 0)
		s := e.start(Options{Gate: g})
		c := s.dial()
		c.pour(message)
		equal(e, "status", c.answer().StatusCode, http.StatusServiceUnavailable)
		if e.BuffersBodies {
			c.say("GET "+string(Item)+"last", "Connection: close") // the connection may stay: its framing must be right
			equal(e, "status of the next", c.answer().StatusCode, http.StatusServiceUnavailable)
		}
		equal(e, "after the answer", c.rest(), "")
		for _, q := range g.requests() {
			if q.Path == string(Ignore) {
				e.Errorf("a body was read as the request %s %s", q.Method, q.Path)
			}
		}
		equal(e, "requests at the handler", s.seen(Ignore), 0)
	}
	if e.BuffersBodies {
		e.declared("BuffersBodies")
	}
}

// keepsConnection: a refusal that leaves nothing unread closes nothing, and a HEAD is
// answered without a body.
func keepsConnection(e *env) {
	s := e.start(Options{Gate: e.slots(0, 0)})
	for i := range 30 {
		method := []string{http.MethodGet, http.MethodHead, http.MethodPost}[i%3]
		a := s.get(call{method: method, route: Ignore})
		equal(e, "status", a.StatusCode, http.StatusServiceUnavailable)
		equal(e, "marker", a.Header.Get(gate.MarkerHeader), string(gate.QueueFull))
		equal(e, "Connection: close", a.Close, false)
		equal(e, method+" without a body", a.text == "", method == http.MethodHead)
	}
	s.kept()
	s.silent()
}

// keepsAfterReading: a refusal that comes when the body has been read, such as that of
// an outbound call, closes nothing either.
func keepsAfterReading(e *env) {
	s := e.start(Options{Gate: e.budget(nil)}, func(c *script) { c.failed.Store(refusal(gate.NoTarget, nil)) })
	body := blob(5000)
	for i := range 9 {
		a := s.get(call{
			route: Fail, arg: []string{"refuse", "return", "refuse"}[i%3], body: reader(body), length: int64(len(body) * (i % 2)),
		})
		equal(e, "status", a.StatusCode, http.StatusServiceUnavailable)
		equal(e, "marker", a.Header.Get(gate.MarkerHeader), string(gate.NoTarget))
		equal(e, "Connection: close", a.Close, false)
	}
	s.kept()
}

// lyingLength: a client that announces more than it sends costs nothing once it is
// gone. Where bodies are buffered, it never gets to the gate.
func lyingLength(e *env) {
	const announced = 5 * mib
	b := e.budget(nil)
	s := e.start(Options{Gate: b})
	for _, framing := range []string{"Content-Length: " + strconv.Itoa(announced), "Transfer-Encoding: chunked"} {
		seen := s.seen(Echo)
		c := s.dial()
		c.say("POST "+string(Echo), framing)
		c.write("8000\r\n" + strings.Repeat("x", e.early())) // within a chunk, if there are any
		if e.BuffersBodies {
			e.await("the server reads", func() bool { return s.listener.in.Load() > 1000 })
			equal(e, "bytes in flight", b.Snapshot().InflightBytes, 0)
		} else {
			e.await("the body is being read", func() bool { return s.seen(Echo) > seen && b.Snapshot().InflightBytes > 0 })
			if strings.HasPrefix(framing, "Content-Length") {
				equal(e, "bytes in flight", b.Snapshot().InflightBytes, announced)
			}
		}
		_ = c.Close()
		e.await("the bytes come back", func() bool { return b.Snapshot().InflightBytes == 0 && b.Snapshot().Inflight == 0 })
		e.await("the connection ends", func() bool { return s.listener.open.Load() == 0 })
	}
	if e.BuffersBodies {
		e.declared("BuffersBodies")
		equal(e, "requests at the handler", s.seen(Echo), 0)
	}
}

// breakOff: clients that leave at every moment, by a clean end or a reset, leave
// nothing behind, whether they wait, are read or are being answered.
func breakOff(e *env) {
	b := e.budget(func(c *admission.Config) { c.QueueTimeout = 50 * time.Millisecond })
	giveBack := e.fill(b, 6*mib)
	defer giveBack()
	s := e.start(Options{Gate: b})
	body := string(blob(1000))
	message := head("POST "+string(Echo), "Content-Length: 1048576") + body
	chunks := head("POST "+string(Watch), "Transfer-Encoding: chunked") + chunked(body, 300)
	for i := range 120 {
		text := []string{message, chunks, head("GET " + string(Watch)), head("GET " + string(Flood))}[i%4]
		c := s.dial()
		if i%3 == 0 {
			text = text[:len(text)*i/120] // anywhere
		}
		c.write(text)
		if i%2 == 0 {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	if e.NoDisconnectSignal {
		e.declared("NoDisconnectSignal")
		s.proceed()
	}
	e.await("all that is held comes back", func() bool { return b.Snapshot().Inflight == 1 && b.Snapshot().Waiting == 0 })
	e.await("the connections end", func() bool { return s.listener.open.Load() == 0 })
	s.silent()
}

// connectionLost: a connection ends under requests that wait, read, work and stream.
func connectionLost(e *env) {
	b := e.budget(func(c *admission.Config) { c.QueueTimeout = 300 * time.Millisecond })
	giveBack := e.fill(b, 7*mib)
	defer giveBack()
	s := e.start(Options{Gate: b})
	s.get(call{route: Ignore}) // HTTP/2 has its one connection now
	ctx, leave := context.WithCancel(e.ctx)
	defer leave()
	calls := []call{
		{route: Watch}, {route: Watch, body: reader(blob(1000))}, {route: Flood}, {route: Flood},
		{route: Echo, body: pause(blob(e.early()), e.early(), nil), length: mib / 2}, {route: Hold, body: pause(blob(e.early()), e.early(), nil), length: 2 * mib},
	}
	if e.BuffersBodies {
		e.declared("BuffersBodies") // what is sent to the end only gets to the gate
		calls[5].body = reader(blob(2 * mib))
	}
	var done []<-chan outcome
	for _, c := range calls {
		c.ctx = ctx
		done = append(done, s.later(c))
	}
	e.await("they are at work", func() bool {
		return s.seen(Watch) == 2 && s.seen(Flood) == 2 && (s.seen(Echo) == 1 || e.BuffersBodies)
	})
	for _, c := range s.opened() {
		_ = c.Close()
	}
	leave()
	for _, d := range done {
		<-d
	}
	if e.NoDisconnectSignal {
		e.declared("NoDisconnectSignal")
		s.proceed()
	}
	e.await("all that is held comes back", func() bool { return b.Snapshot().Inflight == 1 && b.Snapshot().Waiting == 0 })
	e.await("the connections end", func() bool {
		s.client.CloseIdleConnections() // one that came too late for its request
		return s.listener.open.Load() == 0
	})
	equal(e, "requests let in too late", s.seen(Hold), 0)
	s.silent()
}
