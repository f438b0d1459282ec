package gatehttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
	"github.com/headgate-go/headgate/core/gatetest"
)

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

// beaten runs a handler behind a Heart that beats every 10 s, in a bubble.
func beaten(t *testing.T, serve func(w *gatehttp.Heart)) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	rec.Header().Set("X-Outer", "outer")
	synctest.Test(t, func(*testing.T) {
		h := gatehttp.Heartbeat(rec, get(), 10*time.Second)
		defer h.Close()
		serve(h)
	})
	return rec
}

// A handler that answers in time is not changed at all.
func TestHeartInTime(t *testing.T) {
	rec := beaten(t, func(w *gatehttp.Heart) {
		time.Sleep(10*time.Second - 1)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Trailer", "X-Late")
		w.Header().Del("X-Outer")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "{}")
		w.Header().Set("X-Late", "late")
		time.Sleep(time.Minute) // no comments into the answer
		_, _ = io.WriteString(w, "\n")
	})
	res := rec.Result()
	if rec.Code != http.StatusTeapot || rec.Body.String() != "{}\n" || res.Header.Get("X-Outer") != "" ||
		res.Header.Get("Content-Type") != "application/json" || res.Trailer.Get("X-Late") != "late" {
		t.Errorf("%d %q %v %v", rec.Code, rec.Body, res.Header, res.Trailer)
	}
}

// A handler that writes nothing answers as it would by itself, with the header that it set.
func TestHeartOfAnEmptyAnswer(t *testing.T) {
	rec := beaten(t, func(w *gatehttp.Heart) { w.Header().Set("X-Inner", "inner") })
	if rec.Code != http.StatusOK || rec.Header().Get("X-Inner") != "inner" || rec.Header().Get("X-Outer") != "outer" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
}

// Comments come at their times until the handler answers, and its stream goes on in theirs.
func TestHeartBeforeAStream(t *testing.T) {
	rec := beaten(t, func(w *gatehttp.Heart) {
		time.Sleep(35 * time.Second)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Content-Length", "8")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.Flush()
		time.Sleep(time.Minute)
		_, _ = io.WriteString(w, "data: 2\n\n")
	})
	if want := ": queued\n: queued\n: queued\ndata: 1\n\ndata: 2\n\n"; rec.Body.String() != want {
		t.Errorf("got %q, want %q", rec.Body, want)
	}
	h := rec.Result().Header
	if rec.Code != http.StatusOK || h.Get("Content-Type") != "text/event-stream" || h.Get("X-Outer") != "outer" ||
		h.Get("Content-Length") != "" || h.Get("Cache-Control") != "no-store" || !rec.Flushed {
		t.Errorf("%d %v, flushed %v", rec.Code, h, rec.Flushed)
	}
}

// Whatever else the handler answers is in one event, in however many pieces it comes.
func TestHeartBeforeAnAnswerOfAnotherKind(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		text   []string
		want   string
	}{
		"an error":         {503, []string{"{\n", `"a": 1}`}, "event: error\ndata: {\ndata: \"a\": 1}\n\n"},
		"an empty error":   {502, nil, "event: error\ndata: \n\n"},
		"ends of lines":    {500, []string{"a\r", "\nb\r\rc\n"}, "event: error\ndata: a\ndata: b\ndata: \ndata: c\ndata: \n\n"},
		"a plain answer":   {200, []string{"{}"}, "data: {}\n\n"},
		"nothing":          {200, nil, ""},
		"an implicit head": {0, []string{"", "x"}, "data: x\n\n"},
		"a forged event":   {500, []string{"x\n\nevent: done\ndata: y"}, "event: error\ndata: x\ndata: \ndata: event: done\ndata: data: y\n\n"},
	} {
		rec := beaten(t, func(w *gatehttp.Heart) {
			time.Sleep(10*time.Second + 1)
			w.Header().Set("Content-Type", "application/json")
			if c.status != 0 {
				w.WriteHeader(c.status)
			}
			for _, s := range c.text {
				if n, err := io.WriteString(w, s); n != len(s) || err != nil {
					t.Errorf("%s: wrote %d of %d, %v", name, n, len(s), err)
				}
			}
			w.Close()
		})
		if got := strings.TrimPrefix(rec.Body.String(), ": queued\n"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A refusal after a comment is told in an event, as the gate words it.
func TestHeartOfARefusal(t *testing.T) {
	rej := &gate.Rejection{Reason: gate.QueueTimeout, Gate: "inflight", RetryAfter: time.Second}
	body, _ := rej.Render(gate.OpenAI)
	rec := beaten(t, func(w *gatehttp.Heart) {
		time.Sleep(11 * time.Second)
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if !gatehttp.Prepare(w, r, rej) {
			t.Error("nothing is to be answered")
		}
		w.WriteHeader(rej.Status())
		_, _ = w.Write(body)
	})
	if want := ": queued\nevent: error\ndata: " + string(body) + "\n\n"; rec.Body.String() != want {
		t.Errorf("got %q, want %q", rec.Body, want)
	}
}

// Without an interval there are no comments.
func TestHeartWithout(t *testing.T) {
	rec := httptest.NewRecorder()
	synctest.Test(t, func(*testing.T) {
		h := gatehttp.Heartbeat(rec, get(), 0)
		defer h.Close()
		time.Sleep(time.Hour)
		_ = h.FlushError()
	})
	if rec.Body.Len() != 0 || rec.Code != http.StatusOK || !rec.Flushed {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}

// broken is a client that has left.
type broken struct{ http.ResponseWriter }

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A comment that cannot be sent is the last, and after Close there is none at all.
func TestHeartStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := httptest.NewRecorder()
		h := gatehttp.Heartbeat(broken{rec}, get(), time.Second)
		time.Sleep(time.Minute)
		if _, err := h.Write([]byte("x")); err == nil {
			t.Error("the handler is not told")
		}
		h.Close()
		h = gatehttp.Heartbeat(rec, get(), time.Second)
		h.Close()
		h.Close()
		time.Sleep(time.Minute)
		h = gatehttp.Heartbeat(rec, get(), time.Second)
		if h.Stop() {
			t.Error("stopped too late")
		}
		time.Sleep(time.Minute)
		if rec.Body.Len() != 0 {
			t.Errorf("%q after the end", rec.Body)
		}
		h = gatehttp.Heartbeat(rec, get(), time.Second)
		defer h.Close()
		time.Sleep(time.Second + 1)
		if !h.Stop() {
			t.Error("stopped too early")
		}
	})
}

// On a real connection each comment arrives while the handler still waits, but none on
// HTTP/1 before the handler has read the body, which is left alone.
func TestHeartArrives(t *testing.T) {
	for _, protocol := range []int{1, 2} {
		late, heard := make(chan struct{}), make(chan struct{})
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, _ := gatehttp.Ask(w, r, new(gatetest.Free), new(gate.Request), "")
			defer a.Leave()
			r = a.Enter(gate.Problem)
			h := gatehttp.Heartbeat(w, r, time.Millisecond)
			defer h.Close()
			if protocol == 1 {
				time.Sleep(20 * time.Millisecond) // it beats for nothing, on a clock that no one else has
			}
			n, err := io.Copy(io.Discard, r.Body)
			select {
			case <-heard: // the wait ends when the client has seen it
			case <-late:
				t.Error("the client left")
			}
			h.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(h, "data: %d %v\n\n", n, err)
		}))
		srv.EnableHTTP2 = protocol == 2
		srv.StartTLS()
		for _, length := range []int{1 << 20, 1 << 10} {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader(strings.Repeat("x", length)))
			if err != nil {
				t.Fatal(err)
			}
			res, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(res.Body)
			for range 3 {
				if s, err := in.ReadString('\n'); s != ": queued\n" || err != nil {
					t.Fatalf("HTTP/%d: read %q, %v", protocol, s, err)
				}
			}
			heard <- struct{}{}
			rest, err := io.ReadAll(in)
			if err != nil || !strings.HasSuffix(string(rest), fmt.Sprintf("data: %d <nil>\n\n", length)) || res.ProtoMajor != protocol {
				t.Errorf("HTTP/%d: %q, %v", res.ProtoMajor, rest, err)
			}
			_ = res.Body.Close()
			cancel()
		}
		close(late)
		srv.Close()
	}
}
