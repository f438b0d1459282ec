package gatetest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// streamScenes: answers that last, and connections that change hands.
func streamScenes() []scene {
	return []scene{
		both("T06_H5_H7_T36_events_arrive_and_hold", eventsHold),
		both("F3_stream_cancelled_releases", streamCancelled),
		timed("T07_F11_slow_reader_is_cut_off", slowReader),
		first("T05_F16_websocket_holds_until_it_ends", websocket),
		both("T35_H5_writer_is_not_wrapped", writerKept),
		both("T37_interim_answers_pass", interimPasses),
		both("T38_trailers_pass", trailersPass),
	}
}

// eventsHold: each event is there before the next is made, and the slot is held to
// the stream's end.
func eventsHold(e *env) {
	for _, c := range []call{
		{route: Events, ctx: e.ctx},
		{route: Events, ctx: e.ctx, header: map[string]string{"Accept": "application/json"}, body: reader(blob(1000)), length: 1000},
	} {
		e.holdsStream(c)
	}
}

// holdsStream sends c, which answers with a stream, whatever it accepts.
func (e *env) holdsStream(c call) {
	e.Helper()
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g})
	resp, r := s.openStream(c)
	defer resp.Body.Close()
	equal(e, "content type", resp.Header.Get("Content-Type"), "text/event-stream")
	for _, event := range []string{"one", "two", "three"} {
		s.event(event)
		line, err := r.ReadString('\n')
		if err != nil {
			e.Fatalf("event %q did not arrive: %v", event, err)
		}
		equal(e, "event", line, "data: "+event+"\n")
		_, _ = r.ReadString('\n')
		equal(e, "slots held by the stream", g.inUse(), 1)
	}
	s.proceed()
	if _, err := io.Copy(io.Discard, r); err != nil {
		e.Errorf("the end of the stream: %v", err)
	}
	e.await("the stream's slot comes back", func() bool { return g.inUse() == 0 })
}

// openEvents begins to read events.
func (s *server) openEvents(ctx context.Context) (*http.Response, *bufio.Reader) {
	s.e.Helper()
	return s.openStream(call{route: Events, ctx: ctx})
}

// openStream sends c and returns once the head of the answer is there.
func (s *server) openStream(c call) (*http.Response, *bufio.Reader) {
	s.e.Helper()
	type opened struct {
		resp *http.Response
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		resp, err := s.open(c) //nolint:bodyclose // the caller does
		done <- opened{resp, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			s.e.Fatalf("the stream did not open: %v", o.err)
		}
		return o.resp, bufio.NewReader(o.resp.Body)
	case <-s.e.alive.Done():
		s.e.Fatalf("the stream's head did not arrive: nothing is flushed")
	}
	return nil, nil
}

// event lets the stream say text.
func (s *server) event(text string) {
	s.e.Helper()
	select {
	case s.events <- text:
	case <-s.e.alive.Done():
		s.e.Fatalf("no stream takes the event %q", text)
	}
}

// streamCancelled: a client that leaves in the middle frees the slot, at the next
// failed write at the latest, and the next one is served.
func streamCancelled(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g})
	ctx, leave := context.WithCancel(e.ctx)
	defer leave()
	resp, r := s.openEvents(ctx)
	defer resp.Body.Close()
	s.event("one")
	if _, err := r.ReadString('\n'); err != nil {
		e.Fatalf("the event did not arrive: %v", err)
	}
	leave()
	_ = resp.Body.Close()
	e.await("the stream's slot comes back", func() bool {
		if e.NoDisconnectSignal {
			select { // a write must fail
			case s.events <- "anybody there?":
			default:
			}
		}
		return g.inUse() == 0
	})
	if e.NoDisconnectSignal {
		e.declared("NoDisconnectSignal")
	}
	a := s.get(call{route: Ignore})
	equal(e, "status of the next", a.StatusCode, http.StatusOK)
}

// slowReader: the server's WriteTimeout ends an answer that is not read.
func slowReader(e *env) {
	g := e.slots(1, 0)
	s := e.start(Options{Gate: g, WriteTimeout: e.short(300 * time.Millisecond)})
	if e.protocol == http1 {
		s.dial().say("GET " + string(Flood))
	} else {
		resp, err := s.open(call{route: Flood})
		if err != nil {
			e.Fatalf("the stream did not open: %v", err)
		}
		defer resp.Body.Close()
	}
	e.await("the stream has begun", func() bool { return s.seen(Flood) == 1 })
	e.await("the slow reader's slot comes back", func() bool { return g.inUse() == 0 })
}

// websocket: an upgraded connection holds its slot until its session ends, or until
// the app gives it back.
func websocket(e *env) {
	for _, arg := range []string{"", "early"} {
		g := e.slots(1, 0)
		s := e.start(Options{Gate: g})
		c := s.dial()
		const key = "dGhlIHNhbXBsZSBub25jZQ=="
		c.say("GET "+string(Socket), "Connection: Upgrade", "Upgrade: websocket",
			"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: "+key, argHeader+": "+arg)
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil {
			e.Fatalf("no handshake: %v", err)
		}
		_ = resp.Body.Close()
		equal(e, "status of the handshake", resp.StatusCode, http.StatusSwitchingProtocols)
		equal(e, "the handshake's answer", resp.Header.Get("Sec-WebSocket-Accept"), socketAccept(key))
		for _, message := range []string{"ping", "pong"} {
			c.write(string(frame(message, []byte{1, 2, 3, 4})))
			got, err := readFrame(c.r)
			if err != nil {
				e.Fatalf("no message: %v", err)
			}
			equal(e, "message", got, message)
		}
		if arg == "early" {
			equal(e, "slots held after the early release", g.inUse(), 0)
		} else {
			equal(e, "slots held by the session", g.inUse(), 1)
			a := s.get(call{route: Ignore})
			equal(e, "status beside the session", a.StatusCode, http.StatusServiceUnavailable)
		}
		_ = c.Close()
		e.await("the session's slot comes back", func() bool { return g.inUse() == 0 })
		s.silent()
	}
}

// writerKept: the handler gets the writer that it gets without the gate.
func writerKept(e *env) {
	s := e.start(Options{Gate: e.slots(1, 0), Skip: everySecond()})
	if e.NotNetHTTP {
		e.declared("NotNetHTTP")
		equal(e, "writers", s.inspected(call{route: Inspect}).Writer, "")
		eventsHold(e)
		return
	}
	without, with := s.inspected(call{route: Inspect}), s.inspected(call{route: Inspect})
	equal(e, "a lease without the gate", without.Live, false)
	equal(e, "a lease behind the gate", with.Live, true)
	equal(e, "writers behind the gate", with.Writer, without.Writer)
	if !with.Server {
		e.Errorf("the handler's writer does not lead to the server's: %s", with.Writer)
	}
}

// everySecond lets every second request pass the gate, the first one too.
func everySecond() func(string) bool {
	var n atomic.Int64
	return func(string) bool { return n.Add(1)%2 == 1 }
}

// inspected sends c to a handler that tells what it was handed.
func (s *server) inspected(c call) facts {
	s.e.Helper()
	a := s.get(c)
	var f facts
	if err := json.Unmarshal([]byte(a.text), &f); err != nil || a.StatusCode != http.StatusOK {
		s.e.Fatalf("inspection: %d %q", a.StatusCode, a.text)
	}
	return f
}

// interimPasses: 1xx answers are no answers.
func interimPasses(e *env) {
	s := e.start(Options{Gate: e.slots(1, 0)})
	var seen []int
	a := s.get(call{route: Interim, ctx: traceInterim(e.ctx, &seen)})
	equal(e, "status", a.StatusCode, http.StatusCreated)
	equal(e, "body", a.text, "ok")
	if e.NoInterim {
		e.declared("NoInterim")
		equal(e, "interim answers", len(seen), 0)
	} else if len(seen) != 1 || seen[0] != http.StatusEarlyHints {
		e.Errorf("interim answers: got %v, want 103 once", seen)
	}
}

// trailersPass: the trailer of a request arrives behind its body, and that of an
// answer too.
func trailersPass(e *env) {
	s := e.start(Options{Gate: e.budget(nil)})
	body := blob(100_000)
	a := s.get(call{
		route: Trailers, body: reader(body), trailer: http.Header{"Suite-Sum": {"of the request"}},
		header: map[string]string{"TE": "trailers"},
	})
	want := "of the request"
	if e.NoTrailers {
		e.declared("NoTrailers")
		want = ""
	}
	equal(e, "body and the request's trailer", a.text, digestOf(body)+" "+want)
	equal(e, "the answer's trailer", a.Trailer.Get("Suite-Echo"), want)
}
