package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const service = 160 * time.Millisecond

// config is without jitter, so that times are known.
func config(set func(*Config)) Config {
	c := DefaultConfig()
	c.Service, c.Jitter = service, 0
	if set != nil {
		set(&c)
	}
	return c
}

func open(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// recorder is a client in a synctest bubble: it notes when what arrived.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	began  time.Time
	ended  time.Duration
	writes []time.Duration
	inside func() int
	last   int // what inside said at the last write
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.writes = append(r.writes, time.Since(r.began))
	r.last = r.inside()
	return r.body.Write(p)
}

func (r *recorder) Flush() {}

// post calls s as net/http would, an aborted handler included.
func post(ctx context.Context, s *Server, path, body string) (r *recorder, aborted bool) {
	inside := func() int { return s.Stats().Concurrent }
	r = &recorder{header: http.Header{}, began: time.Now(), inside: inside}
	defer func() {
		r.ended = time.Since(r.began)
		if p := recover(); p != nil {
			err, _ := p.(error)
			if aborted = errors.Is(err, http.ErrAbortHandler); !aborted {
				panic(p)
			}
		}
	}()
	s.ServeHTTP(r, httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body)))
	return r, false
}

// law checks what the documentation of Stats promises when no abandoned call is worked on.
func law(t *testing.T, st Stats) {
	t.Helper()
	if st.Started != st.Completed+st.Abandoned+int64(st.Concurrent) {
		t.Errorf("started is not completed + abandoned + concurrent: %+v", st)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, set := range map[string]func(*Config){
		"collapse and retry-after contradict": func(c *Config) { c.Collapse, c.RetryAfter = true, time.Second },
		"retry-after -1s: ":                   func(c *Config) { c.RetryAfter = -time.Second },
		"tokens 0: ":                          func(c *Config) { c.Tokens = 0 },
		"tokens 100001: ":                     func(c *Config) { c.Tokens = 100_001 },
		"max body bytes 0: ":                  func(c *Config) { c.MaxBodyBytes = 0 },
		"capacity 0: ":                        func(c *Config) { c.Capacity = 0 },
		"service -1ns: ":                      func(c *Config) { c.Service = -1 },
		"jitter 2: ":                          func(c *Config) { c.Jitter = 2 },
	} {
		if _, err := New(config(set)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want an error that starts with %q, got %v", want, err)
		}
	}
}

// A whole answer comes when its service ends.
func TestWholeAnswersTakeTheServiceTime(t *testing.T) {
	for path := range dialects {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, config(nil))
			r, _ := post(t.Context(), s, path, `{"model":"m"}`)
			if r.status != http.StatusOK || !slices.Equal(r.writes, []time.Duration{service}) || r.ended != service {
				t.Errorf("%s: status %d, writes at %v, end at %v", path, r.status, r.writes, r.ended)
			}
		})
	}
}

// Who reads the last of an answer may send the next call at once.
func TestAnsweredBeforeTheLastIsWritten(t *testing.T) {
	for path := range dialects {
		for _, body := range []string{`{"model":"m"}`, `{"model":"m","stream":true}`} {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, config(nil))
				if r, _ := post(t.Context(), s, path, body); r.last != 0 || len(r.writes) == 0 {
					t.Errorf("%s %s: %d inside at the last of %d writes", path, body, r.last, len(r.writes))
				}
			})
		}
	}
}

// A stream's head and first token come when its service starts, the tokens evenly, the
// end when its service ends; also behind a queue, and at half the speed.
func TestStreamsArePaced(t *testing.T) {
	for path := range dialects {
		for _, collapse := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, config(func(c *Config) { c.Capacity, c.Collapse = 1, collapse }))
				const body = `{"model":"m","stream":true,"max_tokens":4}`
				var all sync.WaitGroup
				for i := range 2 {
					all.Go(func() {
						r, aborted := post(t.Context(), s, path, body)
						start, step := time.Duration(0), service/4
						switch {
						case collapse:
							step *= 2
						case r.writes[0] != 0: // the second to come
							start = service
						}
						want := []time.Duration{start, start, start + step, start + 2*step, start + 3*step, start + 4*step}
						if aborted || !slices.Equal(r.writes, want) || r.ended != start+4*step {
							t.Errorf("%s, call %d: writes at %v, want %v", path, i, r.writes, want)
						}
						if kind := r.header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" {
							t.Errorf("content type %q", kind)
						}
					})
				}
				all.Wait()
				st := s.Stats()
				law(t, st)
				if st.Completed != 2 || st.WorkMS != 2*service.Milliseconds() || st.MaxConcurrent != 2 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

func TestQueueServesInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, config(func(c *Config) { c.Capacity = 2 }))
		var all sync.WaitGroup
		leaving, cancel := context.WithCancel(t.Context())
		for i := range 7 {
			ctx := t.Context()
			if i == 2 {
				ctx = leaving
			}
			all.Go(func() {
				r, _ := post(ctx, s, "/v1/responses", `{"model":"m"}`)
				rounds := []int{1, 1, 0, 2, 2, 3, 3} // the third leaves the queue
				if want := time.Duration(rounds[i]) * service; i != 2 && r.ended != want {
					t.Errorf("call %d was answered after %v, want %v", i, r.ended, want)
				}
				if i == 2 && r.status != 0 {
					t.Errorf("who had left was answered: %d %s", r.status, &r.body)
				}
			})
			synctest.Wait()
		}
		if st := s.Stats(); st.Waiting != 5 || st.Concurrent != 7 || st.MaxConcurrent != 7 || st.Started != 7 {
			t.Errorf("with seven inside: %+v", st)
		}
		cancel()
		synctest.Wait()
		if st := s.Stats(); st.Waiting != 4 || st.Concurrent != 6 || st.Abandoned != 1 {
			t.Errorf("after one left: %+v", st)
		}
		all.Wait()
		st := s.Stats()
		law(t, st)
		if st.Completed != 6 || st.WorkMS != 6*service.Milliseconds() || st.WastedMS != 0 {
			t.Errorf("at the end: %+v", st)
		}
	})
}

// A client that leaves in the middle stops its work in the one mode, not in the other.
func TestClientsThatLeave(t *testing.T) {
	for _, collapse := range []bool{false, true} {
		for _, body := range []string{`{"model":"m"}`, `{"model":"m","stream":true}`} {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, config(func(c *Config) { c.Collapse = collapse }))
				ctx, cancel := context.WithTimeout(t.Context(), service/4)
				defer cancel()
				r, aborted := post(ctx, s, "/v1/messages", body)
				if streamed := strings.Contains(body, "stream"); aborted != streamed || streamed != (r.body.Len() > 0) {
					t.Errorf("collapse %v: aborted %v after %q", collapse, aborted, &r.body)
				}
				time.Sleep(2 * service)
				want := Stats{MaxConcurrent: 1, Started: 1, Abandoned: 1, WorkMS: 40, WastedMS: 40}
				if collapse {
					want.WorkMS, want.WastedMS = 160, 160
				}
				if st := s.Stats(); st != want {
					t.Errorf("collapse %v: %+v, want %+v", collapse, st, want)
				}
			})
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for path, shape := range map[string]string{
		"/v1/chat/completions": `{"error":{"message":`,
		"/v1/responses":        `{"error":{"message":`,
		"/v1/messages":         `{"type":"error","error":{"type":"rate_limit_error"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, config(func(c *Config) { c.Capacity, c.RetryAfter = 1, 1500*time.Millisecond }))
			var all sync.WaitGroup
			all.Go(func() {
				if r, _ := post(t.Context(), s, path, `{"model":"m"}`); r.status != http.StatusOK {
					t.Errorf("the first: %d", r.status)
				}
			})
			synctest.Wait()
			r, _ := post(t.Context(), s, path, `{"model":"m","stream":true}`)
			if r.status != http.StatusTooManyRequests || r.ended != 0 || r.header.Get("Retry-After") != "2" ||
				!strings.HasPrefix(r.body.String(), shape) {
				t.Errorf("%s: %d after %v, Retry-After %q, %s", path, r.status, r.ended, r.header.Get("Retry-After"), &r.body)
			}
			all.Wait()
			if r, _ := post(t.Context(), s, path, `{"model":"m"}`); r.status != http.StatusOK {
				t.Errorf("after the first: %d", r.status)
			}
			if st := s.Stats(); st.Refused != 1 || st.Started != 2 || st.Completed != 2 || st.MaxConcurrent != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, config(func(c *Config) { c.Capacity = 2 }))
		var all sync.WaitGroup
		for i, body := range []string{`{"model":"m"}`, `{"model":"m","stream":true}`, `{"model":"m","stream":true}`} {
			all.Go(func() {
				r, aborted := post(t.Context(), s, "/v1/messages", body)
				if served := i == 1; aborted != served || !served && r.status != http.StatusServiceUnavailable {
					t.Errorf("call %d: aborted %v, status %d", i, aborted, r.status)
				}
			})
			synctest.Wait()
		}
		time.Sleep(service / 2)
		s.Close()
		s.Close()
		all.Wait()
		if r, _ := post(t.Context(), s, "/v1/messages", `{"model":"m"}`); r.status != http.StatusServiceUnavailable {
			t.Errorf("after Close: %d", r.status)
		}
		st := s.Stats()
		law(t, st)
		if st.Concurrent != 0 || st.Abandoned != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestBadRequests(t *testing.T) {
	s := open(t, config(func(c *Config) { c.MaxBodyBytes = 64 }))
	const openai, anthropic = `{"error":{"message":`, `{"type":"error","error":{"type":"`
	for _, test := range []struct {
		method, path, body string
		status             int
		shape              string
	}{
		{"POST", "/v1/chat/completions", `{`, 400, openai},
		{"POST", "/v1/messages", `{`, 400, anthropic + "invalid_request_error"},
		{"POST", "/v1/responses", `{`, 400, openai},
		{"POST", "/v1/chat/completions", `{}`, 400, `{"error":{"message":"model: required","type":"invalid_request_error","param":"model"`},
		{"POST", "/v1/messages", `{}`, 400, anthropic},
		{"POST", "/v1/responses", `{}`, 400, openai},
		{"POST", "/v1/responses", `["x"]`, 400, `{"error":{"message":"the request body is not a JSON object: it is a JSON array"`},
		{"POST", "/v1/chat/completions", strings.Repeat(" ", 65), 413, openai},
		{"POST", "/v1/messages", strings.Repeat(" ", 65), 413, anthropic + "request_too_large"},
		{"GET", "/v1/chat/completions", "", 405, openai},
		{"GET", "/v1/messages", "", 405, anthropic},
		{"HEAD", "/v1/responses", "", 405, openai},
		{"PUT", "/v1/responses", `{"model":"m"}`, 405, openai},
		{"POST", "/stats", "", 405, openai},
		{"GET", "/stats/reset", "", 405, openai},
		{"GET", "/", "", 404, openai},
		{"POST", "/v1/completions", `{"model":"m"}`, 404, openai},
		{"POST", "/v1/messages/count_tokens", `{"model":"m"}`, 404, anthropic + "not_found_error"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
		if w.Code != test.status || !strings.HasPrefix(w.Body.String(), test.shape) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s %q: %d %s", test.method, test.path, test.body, w.Code, w.Body)
		}
		if allow := w.Header().Get("Allow"); (allow != "") != (test.status == 405) {
			t.Errorf("%s %s: Allow %q", test.method, test.path, allow)
		}
		if w.Header().Get("Request-Id") == "" && w.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s %s: no request id", test.method, test.path)
		}
	}
	if st := s.Stats(); st != (Stats{}) {
		t.Errorf("bad requests were counted as calls: %+v", st)
	}
}

func TestStatsEndpoint(t *testing.T) {
	s := open(t, config(func(c *Config) { c.Service = 0 }))
	post(t.Context(), s, "/v1/responses", `{"model":"m"}`)
	stats := func() map[string]int {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stats", http.NoBody))
		var m map[string]int
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		return m
	}
	want := map[string]int{
		"concurrent": 0, "max_concurrent": 1, "waiting": 0, "started": 1, "completed": 1, "abandoned": 0, "refused": 0, "work_ms": 0, "wasted_ms": 0,
	}
	if got := stats(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/stats/reset", http.NoBody))
	if w.Code != http.StatusNoContent {
		t.Errorf("reset: %d", w.Code)
	}
	want["max_concurrent"], want["started"], want["completed"] = 0, 0, 0
	if got := stats(); !maps.Equal(got, want) {
		t.Errorf("after reset: got %v, want %v", got, want)
	}
}

// A client that keeps to n calls at a time is never counted with more, however it finds
// the end of an answer and however soon it sends the next.
func TestConcurrencyIsNeverOvercounted(t *testing.T) {
	const n = 4
	s := open(t, config(func(c *Config) { c.Service = time.Millisecond }))
	srv := httptest.NewServer(s)
	defer srv.Close()
	ends := map[string]string{"/v1/chat/completions": "[DONE]", "/v1/messages": "event: message_stop", "/v1/responses": "event: response.completed"}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for i := range 20 {
				for path, end := range ends {
					body, mark := `{"model":"m","stream":true}`, end
					if i%2 == 0 {
						body, mark = `{"model":"m"}`, "}\n"
					}
					if err := callUntil(t.Context(), srv.URL+path, body, mark); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	st := s.Stats()
	law(t, st)
	if st.MaxConcurrent > n || st.Completed != n*20*3 || st.Concurrent != 0 {
		t.Errorf("%+v", st)
	}
}

// callUntil reads an answer up to mark, not further, and leaves.
func callUntil(ctx context.Context, url, body, mark string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var got []byte
	buf := make([]byte, 512)
	for !bytes.Contains(got, []byte(mark)) {
		n, err := resp.Body.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil && !bytes.Contains(got, []byte(mark)) {
			return errors.Join(err, errors.New("no "+mark+" in "+string(got)))
		}
	}
	return nil
}

// Over a real connection, a client that leaves is noticed while it waits and
// while it is served, and a closed back end breaks a stream off.
func TestOverAConnection(t *testing.T) {
	s := open(t, config(func(c *Config) { c.Capacity, c.Service = 1, time.Hour }))
	srv := httptest.NewServer(s)
	defer srv.Close()
	until := func(what string, ok func(Stats) bool) {
		t.Helper()
		for guard := time.Now().Add(30 * time.Second); !ok(s.Stats()); time.Sleep(time.Millisecond) {
			if time.Now().After(guard) {
				t.Fatalf("%s: not within 30s: %+v", what, s.Stats())
			}
		}
	}
	start := func(body string) (cancel context.CancelFunc, done chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		done = make(chan error, 1)
		go func() { done <- callUntil(ctx, srv.URL+"/v1/messages", body, "message_stop") }()
		return cancel, done
	}
	leave, first := start(`{"model":"m","stream":true}`)
	until("the first is served", func(st Stats) bool { return st.Concurrent == 1 })
	leaveQueue, second := start(`{"model":"m"}`)
	until("the second waits", func(st Stats) bool { return st.Waiting == 1 })
	leaveQueue()
	until("the second is gone", func(st Stats) bool { return st.Waiting == 0 && st.Abandoned == 1 })
	leave()
	until("the first is gone", func(st Stats) bool { return st.Concurrent == 0 && st.Abandoned == 2 })
	for _, done := range []chan error{first, second} {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left got %v", err)
		}
	}
	cancel, third := start(`{"model":"m","stream":true}`)
	defer cancel()
	until("the third is served", func(st Stats) bool { return st.Concurrent == 1 })
	s.Close()
	if err := <-third; !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a closed back end ended with %v", err)
	}
	law(t, s.Stats())
}
