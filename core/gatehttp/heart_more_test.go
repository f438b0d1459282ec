package gatehttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gatehttp"
)

// script is what a handler does, step by step.
type script []func(w http.ResponseWriter)

func (s script) run(w http.ResponseWriter) {
	for _, step := range s {
		step(w)
	}
}

// write writes text to w. A client that has left is of no interest here.
func write(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// randomScript returns a handler's work and the status that it answers with.
func randomScript(rng *rand.Rand) (s script, status int, stream bool) {
	status = []int{200, 200, 201, 204, 301, 304, 404, 413, 500, 503}[rng.IntN(10)]
	stream = rng.IntN(2) == 0
	pause := func() {
		d := []time.Duration{0, 1, time.Second, 15 * time.Second}[rng.IntN(4)]
		s = append(s, func(http.ResponseWriter) { time.Sleep(d) })
	}
	kind := "application/json"
	if stream {
		kind = "text/event-stream; charset=utf-8"
	}
	s = append(s, func(w http.ResponseWriter) { w.Header().Set("Content-Type", kind); w.Header().Del("X-Outer") })
	pause()
	if rng.IntN(3) == 0 {
		s = append(s, func(w http.ResponseWriter) { w.Header().Set("Link", "</a>"); w.WriteHeader(http.StatusEarlyHints) })
		pause()
	}
	trailer := rng.IntN(2) == 0
	if trailer {
		s = append(s, func(w http.ResponseWriter) { w.Header().Set("Trailer", "X-Late") })
	}
	s = append(s, func(w http.ResponseWriter) { w.WriteHeader(status) })
	for range rng.IntN(5) {
		pause()
		var text strings.Builder
		for range rng.IntN(8) {
			text.WriteString([]string{"data: x\n\n", "\n", "\r", "\r\n", "a", "", ": c\n", "event: error\n", "ü", "\x00", `{"a": 1}`}[rng.IntN(11)])
		}
		s = append(s, func(w http.ResponseWriter) { write(w, text.String()) })
		if rng.IntN(3) == 0 {
			s = append(s, func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() })
		}
	}
	s = append(s, func(w http.ResponseWriter) { w.Header().Set("X-Too-Late", "x") })
	if trailer {
		s = append(s, func(w http.ResponseWriter) { w.Header().Set("X-Late", "late") })
	}
	pause()
	return s, status, stream
}

// plain is text with the ends of its lines made alike.
func plain(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

type event struct{ name, data string }

// events reads a stream as the standard for server-sent events has it.
func events(text string) (all []event) {
	var now event
	data := false
	text = plain(text)
	for line := range strings.SplitSeq(text[:strings.LastIndexByte(text, '\n')+1], "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data {
				now.data = strings.TrimSuffix(now.data, "\n")
				all = append(all, now)
			}
			now, data = event{}, false
		case name == "event":
			now.name = value
		case name == "data":
			now.data, data = now.data+value+"\n", true
		}
	}
	return all
}

// final is a recorder's writer that knows interim answers, which a recorder takes for the
// answer.
type final struct{ *httptest.ResponseRecorder }

func (f final) WriteHeader(status int) {
	if status >= 200 {
		f.ResponseRecorder.WriteHeader(status)
	}
}

// checkHeart runs a random handler with comments and without. One that no comment came
// before answers the same; from a stream that has begun, a client reads the same.
func checkHeart(t *testing.T, seed uint64, every time.Duration) {
	t.Helper()
	s, status, stream := randomScript(rand.New(rand.NewPCG(seed, 1)))
	record := func(serve func(w http.ResponseWriter)) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		rec.Header().Set("X-Outer", "outer")
		serve(final{rec})
		return rec
	}
	want := record(s.run)
	begun := false
	got := record(func(w http.ResponseWriter) {
		h := gatehttp.Heartbeat(w, get(), every)
		defer h.Cut()
		s.run(h)
		h.Close()
		begun = h.Stop()
	})
	if !begun {
		if got.Code != want.Code || got.Body.String() != want.Body.String() || got.Flushed != want.Flushed ||
			!reflect.DeepEqual(got.Result().Header, want.Result().Header) || !reflect.DeepEqual(got.Result().Trailer, want.Result().Trailer) {
			t.Errorf("seed %d: got %d %v %v %q, want %d %v %v %q", seed, got.Code, got.Result().Header, got.Result().Trailer, got.Body,
				want.Code, want.Result().Header, want.Result().Trailer, want.Body)
		}
		return
	}
	if h := got.Result().Header; got.Code != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("X-Outer") != "outer" || h.Get("Link") != "" {
		t.Errorf("seed %d: began as %d %v", seed, got.Code, h)
	}
	body := want.Body.String()
	var told []event
	switch {
	case status < 300 && stream:
		told = events(body)
	case status >= 400:
		told = []event{{"error", plain(body)}}
	case body != "":
		told = []event{{"", plain(body)}}
	}
	if heard := events(got.Body.String()); !reflect.DeepEqual(heard, told) {
		t.Errorf("seed %d: %d %v: heard %q, want %q, of %q", seed, status, stream, heard, told, got.Body)
	}
}

func TestHeartAgainstAModel(t *testing.T) {
	for seed := range uint64(3000) {
		synctest.Test(t, func(t *testing.T) { checkHeart(t, seed, 10*time.Second) })
	}
}

// The race detector looks on while comments and answers meet.
func TestHeartMeetsAnswers(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		rec, every := httptest.NewRecorder(), time.Duration(1+rng.IntN(20000))
		h := gatehttp.Heartbeat(rec, get(), every)
		for range rng.IntN(2000) {
			h.Header().Set("X-A", "a")
		}
		h.Header().Set("Content-Type", "text/event-stream")
		write(h, "data: x\n\n")
		h.Flush()
		h.Header().Set("X-B", "b")
		h.Close()
		if told := events(rec.Body.String()); len(told) != 1 || told[0].data != "x" || rec.Code != http.StatusOK {
			t.Fatalf("seed %d: %d %q", seed, rec.Code, rec.Body)
		}
	}
}

// What a panic leaves is never taken for whole, and somebody who has got comments alone
// is told that nothing comes.
func TestHeartIsCut(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(w *gatehttp.Heart)
		want  []event
	}{
		"before it answers": {func(*gatehttp.Heart) {}, []event{{"error", ""}}},
		"in an event":       {func(w *gatehttp.Heart) { w.WriteHeader(500); write(w, "{") }, nil},
		"in a stream": {func(w *gatehttp.Heart) {
			w.Header().Set("Content-Type", "text/event-stream")
			write(w, "data: x\n\ndata: y")
		}, []event{{"", "x"}}},
		"after it has closed": {func(w *gatehttp.Heart) { w.WriteHeader(500); write(w, "{}"); w.Close() }, []event{{"error", "{}"}}},
	} {
		rec := httptest.NewRecorder()
		synctest.Test(t, func(*testing.T) {
			h := gatehttp.Heartbeat(rec, get(), time.Second)
			time.Sleep(1500 * time.Millisecond)
			c.serve(h)
			h.Cut()
			h.Cut()
			h.Close()
			time.Sleep(time.Minute)
		})
		if got := events(rec.Body.String()); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q of %q, want %q", name, got, rec.Body, c.want)
		}
	}
	rec := httptest.NewRecorder()
	h := gatehttp.Heartbeat(rec, get(), time.Hour)
	h.Header().Set("X-A", "a")
	if h.Cut(); rec.Body.Len() != 0 || rec.Header().Get("X-A") != "a" {
		t.Errorf("without a comment: %q %v", rec.Body, rec.Header())
	}
}

// An encoding that the handler names too late would make the stream unreadable.
func TestHeartOfAnEncodedAnswer(t *testing.T) {
	for _, outer := range []string{"", "gzip"} {
		rec := httptest.NewRecorder()
		if outer != "" {
			rec.Header().Set("Content-Encoding", outer)
		}
		synctest.Test(t, func(*testing.T) {
			h := gatehttp.Heartbeat(rec, get(), time.Second)
			defer h.Close()
			time.Sleep(1500 * time.Millisecond)
			h.Header().Set("Content-Encoding", "gzip")
			h.Header().Set("Content-Type", "text/event-stream")
			if n, err := h.Write([]byte("\x1f\x8b\n\n")); n != 4 || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		})
		got, want := events(rec.Body.String()), outer == ""
		if told := len(got) == 1 && got[0].name == "error" && strings.Contains(got[0].data, "encoding"); told != want || strings.Contains(rec.Body.String(), "\x1f\x8b") == want {
			t.Errorf("outer encoding %q: %q", outer, rec.Body)
		}
	}
}

// adds is a writer whose head has more than it was given, as those that compress have.
type adds struct{ http.ResponseWriter }

func (a adds) WriteHeader(status int) {
	a.Header().Del("Content-Length")
	a.Header().Set("Content-Encoding", "gzip")
	a.ResponseWriter.WriteHeader(status)
}

// What writers around the server's have made of the header stays.
func TestHeartLeavesAHeadThatIsSent(t *testing.T) {
	rec := httptest.NewRecorder()
	h := gatehttp.Heartbeat(adds{rec}, get(), time.Hour)
	h.Header().Set("Content-Length", "1")
	h.WriteHeader(http.StatusOK)
	h.Close()
	if got := rec.Header(); got.Get("Content-Encoding") != "gzip" || got.Get("Content-Length") != "" {
		t.Errorf("%v", got)
	}
}

// taken is a writer whose connection can be taken over.
type taken struct {
	*httptest.ResponseRecorder
	fails  bool
	is     bool
	writes int // afterwards
}

func (c *taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if c.fails {
		return nil, nil, http.ErrNotSupported
	}
	c.is = true
	return nil, nil, nil
}

func (c *taken) Write(p []byte) (int, error) {
	if c.is {
		c.writes++
	}
	return c.ResponseRecorder.Write(p)
}

func (c *taken) WriteString(s string) (int, error) { return c.Write([]byte(s)) }

// Nothing is written to a connection that somebody else has.
func TestHeartIsHijacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{0, 2500 * time.Millisecond} {
			c := &taken{ResponseRecorder: httptest.NewRecorder()}
			h := gatehttp.Heartbeat(c, get(), time.Second)
			time.Sleep(wait)
			if _, _, err := http.NewResponseController(h).Hijack(); err != nil || !c.is {
				t.Errorf("not hijacked: %v", err)
			}
			time.Sleep(time.Minute)
			h.Cut()
			if c.writes != 0 {
				t.Errorf("%d writes after %v", c.writes, wait)
			}
		}
		c := &taken{ResponseRecorder: httptest.NewRecorder(), fails: true}
		h := gatehttp.Heartbeat(c, get(), time.Second)
		defer h.Close()
		if _, _, err := http.NewResponseController(h).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if !h.Stop() {
			t.Error("a connection that was not taken over gets no comment")
		}
	})
}

// pipes is a network that synctest knows.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// over asks h on HTTP/1 or HTTP/2, in a bubble, and calls read with the answer.
func over(t *testing.T, protocol int, method string, set func(*http.Server), h http.HandlerFunc, read func(*http.Response)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var p http.Protocols
		p.SetHTTP1(protocol == 1)
		p.SetUnencryptedHTTP2(protocol == 2)
		ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		srv := &http.Server{Handler: h, Protocols: &p}
		set(srv)
		go func() { _ = srv.Serve(ln) }()
		tr := &http.Transport{Protocols: &p, DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			ln.conns <- server
			return client, nil
		}}
		defer synctest.Wait()
		defer func() { _ = srv.Close() }()
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://host/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Errorf("HTTP/%d: %v", protocol, err)
			return
		}
		read(res)
		_ = res.Body.Close()
	})
}

// A wait that is longer than the server's WriteTimeout costs neither comments nor the
// answer, also where comments come less often than that.
func TestHeartOutlivesWriteTimeout(t *testing.T) {
	for _, protocol := range []int{1, 2} {
		for _, every := range []time.Duration{2 * time.Second, 30 * time.Second} {
			over(t, protocol, http.MethodGet, func(s *http.Server) { s.WriteTimeout = 5 * time.Second }, func(w http.ResponseWriter, r *http.Request) {
				h := gatehttp.Heartbeat(w, r, every)
				defer h.Cut()
				time.Sleep(100 * time.Second)
				h.Header().Set("Content-Type", "text/event-stream")
				write(h, "data: 1\n\n")
				h.Flush()
				time.Sleep(4 * time.Second)
				write(h, "data: 2\n\n")
				h.Close()
			}, func(res *http.Response) {
				text, err := io.ReadAll(res.Body)
				if want := []event{{"", "1"}, {"", "2"}}; err != nil || res.ProtoMajor != protocol || !reflect.DeepEqual(events(string(text)), want) ||
					!strings.HasPrefix(string(text), ": queued\n: queued\n") {
					t.Errorf("HTTP/%d, every %v: %q, %v", res.ProtoMajor, every, text, err)
				}
			})
		}
	}
}

// HEAD is answered as by the handler alone, however late.
func TestHeartOfHEAD(t *testing.T) {
	for _, protocol := range []int{1, 2} {
		over(t, protocol, http.MethodHead, func(*http.Server) {}, func(w http.ResponseWriter, r *http.Request) {
			h := gatehttp.Heartbeat(w, r, time.Second)
			defer h.Cut()
			time.Sleep(time.Minute)
			h.Header().Set("X-A", "a")
			h.WriteHeader(http.StatusTeapot)
			h.Close()
		}, func(res *http.Response) {
			if res.StatusCode != http.StatusTeapot || res.Header.Get("X-A") != "a" {
				t.Errorf("HTTP/%d: %d %v", res.ProtoMajor, res.StatusCode, res.Header)
			}
		})
	}
}

// A client that leaves in the midst of the comments leaves nothing behind: the bubble ends.
func TestHeartOfAClientThatLeaves(t *testing.T) {
	for _, protocol := range []int{1, 2} {
		var left atomic.Bool
		over(t, protocol, http.MethodGet, func(*http.Server) {}, func(w http.ResponseWriter, r *http.Request) {
			h := gatehttp.Heartbeat(w, r, time.Second)
			defer h.Cut()
			<-r.Context().Done()
			time.Sleep(10 * time.Second) // comments go on for a while
			left.Store(true)
			h.WriteHeader(http.StatusInternalServerError)
			write(h, fmt.Sprint(r.Context().Err()))
			h.Close()
		}, func(res *http.Response) {
			in := bufio.NewReader(res.Body)
			for range 2 {
				if s, err := in.ReadString('\n'); s != ": queued\n" || err != nil {
					t.Errorf("%q, %v", s, err)
				}
			}
			_ = res.Body.Close()
			time.Sleep(time.Minute)
			if !left.Load() {
				t.Error("the handler is not told")
			}
		})
	}
}
