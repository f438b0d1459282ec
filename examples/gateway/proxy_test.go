package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Calls of all three APIs, whole and streamed, arrive as they were sent, and their
// answers come back as they were given, byte for byte.
func TestCallsPassThrough(t *testing.T) {
	for _, mode := range everyMode() {
		back := models(t, 20*time.Millisecond)
		a := start(t, "", mode, "-upstream", back.URL)
		calls := 0
		for _, api := range apis {
			for _, stream := range []bool{false, true} {
				t.Run(strings.TrimPrefix(mode, "-")+api.path+" stream="+strconv.FormatBool(stream), func(t *testing.T) {
					body := question(stream, 300<<10)
					resp, answer := a.in(t).ask(api.path, body, "X-Mine", "1", "X-Mine", "2")
					calls++
					seen := back.done(calls)[calls-1]
					assert.Equal(t, "POST", seen.method)
					assert.Equal(t, api.path, seen.uri)
					assert.EqualValues(t, len(body), seen.length)
					assert.Equal(t, digest([]byte(body)).SHA256, seen.sha256)
					assert.Equal(t, []string{"1", "2"}, seen.header.Values("X-Mine"))

					require.Equal(t, 200, resp.StatusCode, answer)
					assert.Equal(t, seen.answer, answer)
					for name := range seen.answered {
						assert.Equal(t, seen.answered[name], resp.Header[name], name)
					}
					if stream {
						assert.Contains(t, resp.Header.Get("Content-Type"), "text/event-stream")
						assert.Greater(t, strings.Count(answer, "data: "), 16)
					}
				})
			}
		}
		if mode != "-bare" {
			a.untilZero()
		}
	}
}

// Without -upstream the gateway answers calls by itself, and says so.
func TestMockBackEnd(t *testing.T) {
	a := start(t, "")
	a.logs("no -upstream: calls go to a mock back end in this process")
	for _, api := range apis {
		resp, answer := a.ask(api.path, question(false, 0))
		require.Equal(t, 200, resp.StatusCode, answer)
		assert.Contains(t, answer, `"usage"`)
	}
	a.untilZero()
}

// A body of unknown length arrives whole too, and the back end's own errors pass
// like any answer.
func TestCallsPassThroughChunked(t *testing.T) {
	back := models(t, 0)
	a := start(t, "", "-upstream", back.URL)
	body := question(false, 3*mib)
	resp, answer := a.do(http.MethodPost, "/v1/responses", struct{ io.Reader }{strings.NewReader(body)})
	require.Equal(t, 200, resp.StatusCode, answer)
	assert.Equal(t, digest([]byte(body)).SHA256, back.done(1)[0].sha256)
	assert.EqualValues(t, -1, back.done(1)[0].length)

	resp, answer = a.do(http.MethodPost, "/v1/messages", strings.NewReader("no JSON"))
	assert.Equal(t, 400, resp.StatusCode)
	assert.Equal(t, back.done(2)[1].answer, answer)
	resp, answer = a.do(http.MethodPost, "/v1/messages", nil)
	assert.Equal(t, 400, resp.StatusCode)
	assert.Equal(t, back.done(3)[2].answer, answer)
	assert.False(t, resp.Close)
	a.untilZero()
}

// Events are passed on one by one, each before the next one exists.
func TestEventsDoNotWait(t *testing.T) {
	for _, mode := range everyMode() {
		t.Run(strings.TrimPrefix(mode, "-"), func(t *testing.T) { eventsDoNotWait(t, mode) })
	}
}

func eventsDoNotWait(t *testing.T, mode string) {
	t.Helper()
	next := make(chan string)
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	a := start(t, "", "-upstream", back.URL, mode)
	got := make(chan *http.Response, 1)
	go func() {
		resp, err := a.client.Do(a.request("/v1/chat/completions", question(true, 0))) //nolint:bodyclose // it is, by who gets it
		assert.NoError(t, err)
		got <- resp
	}()
	next <- "data: 0\n\n"
	resp := <-got
	require.NotNil(t, resp)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 5 {
		for _, want := range []string{"data: " + strconv.Itoa(i) + "\n", "\n"} {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, want, line)
		}
		if i < 4 {
			next <- "data: " + strconv.Itoa(i+1) + "\n\n"
		}
	}
	close(next)
	_, err := lines.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	if mode != "-bare" {
		a.untilZero()
	}
}

// The first token is there while the back end has an hour's work before it, and a
// client that leaves then ends that work.
func TestClientLeavesStream(t *testing.T) {
	back := models(t, time.Hour)
	a := start(t, smallBudget, "-upstream", back.URL)
	for i, api := range apis {
		ctx, leave := context.WithCancel(t.Context())
		resp, err := a.client.Do(a.request(api.path, question(true, mib)).WithContext(ctx))
		require.NoError(t, err)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		assert.NotEmpty(t, line)
		assert.Equal(t, 1, back.model.Stats().Concurrent)
		a.until("its bytes are back", func(s status) bool { return s["inflight_bytes"] == 0 && s["inflight"] == 0 })
		leave()
		resp.Body.Close()
		back.until("given up", func(s upstream.Stats) bool { return s.Abandoned == int64(i+1) && s.Concurrent == 0 })
	}
	a.untilZero()
	assert.NotContains(t, a.log.String(), "level=ERROR")
	assert.NotContains(t, a.log.String(), "did not answer")
}

// A client that leaves before there is an answer ends the call too.
func TestClientLeavesBeforeTheAnswer(t *testing.T) {
	back := models(t, time.Hour)
	a := start(t, smallBudget, "-upstream", back.URL)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		resp, err := a.client.Do(a.request("/v1/messages", question(false, mib)).WithContext(ctx))
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	back.until("the call", func(s upstream.Stats) bool { return s.Concurrent == 1 })
	assert.EqualValues(t, mib, a.status()["inflight_bytes"], "there is no answer yet")
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	back.until("given up", func(s upstream.Stats) bool { return s.Abandoned == 1 && s.Concurrent == 0 })
	a.untilZero()
	assert.NotContains(t, a.log.String(), "did not answer")
}

// A back end that breaks off breaks its answer off: it must not look complete.
func TestBackEndBreaksOff(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: half an ans")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	a := start(t, "", "-upstream", back.URL)
	resp, err := a.client.Do(a.request("/v1/responses", "{}"))
	require.NoError(t, err)
	_, text, err := read(resp)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "data: half an ans", text)
	a.untilZero()
}

// A back end that cannot be reached, or that answers nonsense, is 502 in the API's own
// shape. The log says why, the client is not told where the back end is.
func TestBackEndUnreachable(t *testing.T) {
	gone := listen(t, http.NotFoundHandler())
	gone.Close()
	mute := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	for _, back := range []*spy{gone, mute} {
		for _, mode := range everyMode() {
			a := start(t, "", "-upstream", back.URL, mode)
			for _, api := range apis {
				for _, size := range []int{0, 2 * mib} {
					resp, answer := a.ask(api.path, question(true, size))
					s := requireShape(t, api.path, resp, answer, 502)
					assert.Equal(t, "the upstream did not answer", s.Error.Message)
					assert.NotContains(t, answer, strings.TrimPrefix(back.URL, "http://"))
					assert.Empty(t, resp.Header.Get("Headgate-Reason"))
				}
			}
			a.logs("the upstream did not answer")
			if mode != "-bare" {
				a.untilZero()
			}
		}
	}
}

// Answers that the byte gate gives on an API's path have the API's own shape, before the
// handler and inside of it; on other paths they are problem+json.
func TestRefusalShapes(t *testing.T) {
	back := models(t, 0)
	a := start(t, "admission: {hard_max_body_bytes: 64KiB, body_idle: 200ms}", "-upstream", back.URL)
	for _, api := range append([]api{{"/echo", gate.Problem}}, apis...) {
		for name, c := range map[string]struct {
			head, body string
			status     int
			reason     string
		}{
			"declared": {"Content-Length: 65537", "", 413, "payload_too_large"},
			"chunked":  {"Transfer-Encoding: chunked", "10001\r\n" + strings.Repeat("x", 0x10001) + "\r\n", 413, "payload_too_large"},
			"slow":     {"Content-Length: 1000", "x", 408, "slow_body"},
		} {
			t.Run(name+" "+api.path, func(t *testing.T) {
				conn := a.in(t).dial()
				if name == "slow" && a.in(t).fiberCannot(noSmallBody) {
					c.head += "0"
				}
				conn.post(api.path, c.head)
				conn.say(c.body)
				resp, answer := conn.answer()
				if api.format == gate.Problem {
					requireRefused(t, resp, answer, c.status, c.reason)
				} else {
					s := requireShape(t, api.path, resp, answer, c.status)
					assert.Equal(t, c.reason, s.Error.Code)
					assert.Equal(t, c.reason, resp.Header.Get("Headgate-Reason"))
					assert.Contains(t, s.Error.Message, "refused locally by admission")
				}
				assert.True(t, resp.Close)
			})
		}
	}
	a.untilZero()
	assert.Zero(t, back.model.Stats().Started)
}

// A body that has no room to grow any more is refused while the back end reads it, also
// when its client sends nothing more and does not leave.
func TestNoRoomToGrowOnTheWay(t *testing.T) {
	for _, api := range apis {
		back := models(t, 0)
		a := start(t, smallBudget, "-upstream", back.URL)
		full := a.dial()
		full.post("/echo", "Content-Length: "+strconv.Itoa(8*mib-100<<10)) // leaves room for one step
		a.until("the budget is almost full", func(s status) bool { return s["inflight_bytes"] > 7*mib })
		c := a.dial()
		c.post(api.path, "Transfer-Encoding: chunked")
		c.say("20000\r\n" + strings.Repeat("x", 0x20000) + "\r\n")
		resp, answer := c.answer()
		s := requireShape(t, api.path, resp, answer, 503)
		assert.Equal(t, "admission_busy", s.Error.Code)
		assert.NotEmpty(t, resp.Header.Get("Retry-After"))
		assert.True(t, resp.Close)
		c.closed()
		full.reset()
		a.untilZero()
	}
}
