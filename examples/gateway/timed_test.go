package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// step is what a scripted back end does with one attempt.
type step struct {
	after  time.Duration // of the head
	err    error         // in place of a head
	status int           // 0 = 200
	header http.Header
	body   string
	rest   time.Duration // of the end of the body, after the head
	broken error         // in place of that end
}

// script is a back end that plays its steps in turn, the last one again and again.
type script struct {
	t     *testing.T
	mu    sync.Mutex
	steps []step
	seen  []attemptSeen
	open  int // exchanges whose body is not over
}

type attemptSeen struct {
	at   time.Time
	body string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	at := time.Now()
	n := len(s.seen)
	s.seen = append(s.seen, attemptSeen{at: at})
	do := s.steps[min(n, len(s.steps)-1)]
	s.open++
	s.mu.Unlock()
	over := sync.OnceFunc(func() { s.mu.Lock(); s.open--; s.mu.Unlock() })
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		s.mu.Lock()
		s.seen[n].body = string(text)
		s.mu.Unlock()
		if err != nil {
			over()
			return nil, err
		}
	}
	if err := hold(r.Context(), do.after); err != nil || do.err != nil {
		over()
		return nil, errors.Join(err, do.err)
	}
	resp := &http.Response{StatusCode: max(do.status, 200), Header: do.header.Clone(), ContentLength: -1, Request: r}
	if do.status == 0 {
		resp.StatusCode = 200
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Body = &scriptBody{ctx: r.Context(), step: do, text: strings.NewReader(do.body), over: over}
	return resp, nil
}

type scriptBody struct {
	ctx  context.Context
	step step
	text *strings.Reader
	over func()
}

func (b *scriptBody) Read(p []byte) (int, error) {
	if b.text.Len() > 0 {
		return b.text.Read(p)
	}
	if err := hold(b.ctx, b.step.rest); err != nil {
		b.over()
		return 0, err
	}
	b.over()
	if b.step.broken != nil {
		return 0, b.step.broken
	}
	return 0, io.EOF
}
func (b *scriptBody) Close() error { b.over(); return nil }

var oneLane = clientwrap.LaneByModel("http://back.test")

// limiterOf returns a limiter with a number of slots and no reserve.
func limiterOf(t *testing.T, slots int, queueTimeout time.Duration) *inflight.Limiter {
	t.Helper()
	c := inflight.DefaultConfig()
	c.MaxInflight, c.InteractiveReserve, c.QueueTimeout = slots, 0, queueTimeout
	l, err := inflight.New(c)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func post(ctx context.Context, t *testing.T, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://back.test/v1/responses", struct{ io.Reader }{strings.NewReader(body)})
	require.NoError(t, err)
	r.ContentLength = int64(len(body))
	return r
}

// both runs a test without a limiter and with one.
func both(t *testing.T, run func(t *testing.T, l *inflight.Limiter)) {
	t.Helper()
	t.Run("bare", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { run(t, nil) }) })
	t.Run("headgate", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, 1, time.Hour)
			run(t, l)
			synctest.Wait()
			for _, lane := range l.Snapshot().Lanes {
				assert.Zero(t, lane.Inflight, "every slot came back")
			}
			l.Close()
		})
	})
}

var errDown = errors.New("connection refused")

// What is tried again, how often, and what the caller gets.
func TestAttempts(t *testing.T) {
	const timeout = 3 * time.Second
	stall := step{after: time.Hour}
	for name, c := range map[string]struct {
		steps    []step
		attempts int
		seen     int
		status   int // 0 = an error
		err      error
	}{
		"answered":                    {[]step{{body: "ok"}}, 3, 1, 200, nil},
		"one attempt":                 {[]step{{status: 503}}, 1, 1, 503, nil},
		"503 then answered":           {[]step{{status: 503}, {body: "ok"}}, 3, 2, 200, nil},
		"503 for ever":                {[]step{{status: 503}}, 3, 3, 503, nil},
		"408":                         {[]step{{status: 408}, {body: "ok"}}, 2, 2, 200, nil},
		"409":                         {[]step{{status: 409}, {body: "ok"}}, 2, 2, 200, nil},
		"429":                         {[]step{{status: 429}, {body: "ok"}}, 2, 2, 200, nil},
		"500":                         {[]step{{status: 500}, {body: "ok"}}, 2, 2, 200, nil},
		"400":                         {[]step{{status: 400}, {body: "ok"}}, 3, 1, 400, nil},
		"404":                         {[]step{{status: 404}, {body: "ok"}}, 3, 1, 404, nil},
		"asked not to":                {[]step{{status: 503, header: http.Header{"X-Should-Retry": {"false"}}}, {body: "ok"}}, 3, 1, 503, nil},
		"no connection":               {[]step{{err: errDown}, {body: "ok"}}, 3, 2, 200, nil},
		"no connection for ever":      {[]step{{err: errDown}}, 3, 3, 0, errDown},
		"too slow":                    {[]step{stall, {body: "ok"}}, 3, 2, 200, nil},
		"too slow for ever":           {[]step{stall}, 3, 3, 0, &timeoutError{timeout}},
		"too slow in one attempt":     {[]step{stall}, 1, 1, 0, &timeoutError{timeout}},
		"the body too slow":           {[]step{{body: "half", rest: time.Hour}, {body: "ok"}}, 3, 2, 200, nil},
		"the body too slow in one":    {[]step{{body: "half", rest: time.Hour}}, 1, 1, 0, &timeoutError{timeout}},
		"breaks off":                  {[]step{{body: "half", broken: io.ErrUnexpectedEOF}, {body: "ok"}}, 3, 2, 200, nil},
		"just in time":                {[]step{{after: timeout - 2, rest: 1, body: "ok"}}, 3, 1, 200, nil},
		"head in time, end too late":  {[]step{{after: timeout - 1, rest: 2, body: "ok"}, {body: "ok"}}, 3, 2, 200, nil},
		"the last status passes":      {[]step{{status: 500}, {err: errDown}, {status: 429, body: "ok"}}, 3, 3, 429, nil},
		"a refusal that is not again": {[]step{{err: &gate.Rejection{Reason: gate.SlowBody}}}, 3, 1, 0, gate.SlowBody},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, l *inflight.Limiter) { //nolint:thelper // it is the test
				back := &script{t: t, steps: c.steps}
				client := newTimedClient(timed{timeout, c.attempts}, back, l, oneLane, quiet())
				begin := time.Now()
				r := post(t.Context(), t, "question")
				resp, err := client.RoundTrip(r)
				require.Len(t, back.seen, c.seen)
				for _, a := range back.seen {
					assert.Equal(t, "question", a.body)
				}
				assert.Less(t, time.Since(begin), time.Duration(c.seen)*timeout+2*time.Second)
				if c.status == 0 {
					require.Error(t, err)
					if late := (*timeoutError)(nil); errors.As(c.err, &late) {
						assert.ErrorAs(t, err, &late)
					} else {
						assert.ErrorIs(t, err, c.err)
					}
				} else {
					require.NoError(t, err)
					assert.Equal(t, c.status, resp.StatusCode)
					assert.Same(t, r, resp.Request)
					assert.Zero(t, back.open, "the answer is whole, nothing of it is open")
					text, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					if c.status == 200 {
						assert.Equal(t, "ok", string(text))
					}
					require.NoError(t, resp.Body.Close())
				}
				assert.Zero(t, back.open)
			})
		})
	}
}

// The pauses between attempts double, less up to a quarter, unless the answer asks for
// one.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := &script{t: t, steps: []step{{err: errDown}}}
		_, err := newTimedClient(timed{0, 8}, back, nil, oneLane, quiet()).RoundTrip(post(t.Context(), t, "")) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, errDown)
		want := firstPause
		for i := 1; i < len(back.seen); i++ {
			pause := back.seen[i].at.Sub(back.seen[i-1].at)
			assert.LessOrEqual(t, pause, want, i)
			assert.GreaterOrEqual(t, pause, want*3/4, i)
			want = min(2*want, mostPause)
		}
	})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for says, want := range map[string]time.Duration{
		"2": 2 * time.Second, "61": time.Minute, "2147483647": time.Minute,
		now.Add(5 * time.Second).Format(http.TimeFormat): 5 * time.Second,
		now.Add(time.Hour).Format(http.TimeFormat):       time.Minute,
		"": 0, "0": 0, "-1": 0, "soon": 0, "99999999999": 0, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		resp := &http.Response{Header: http.Header{"Retry-After": {says}}}
		if got := pauseAfter(1, resp, now); want > 0 {
			assert.Equal(t, want, got, says)
		} else {
			assert.InDelta(t, firstPause*7/8, got, float64(firstPause/8), says)
		}
	}
}

// A stream has until its head; an answer that is too long to keep is cut where it is.
func TestTimeoutOfStreams(t *testing.T) {
	both(t, func(t *testing.T, l *inflight.Limiter) { //nolint:thelper // it is the test
		events := http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}
		back := &script{t: t, steps: []step{
			{after: time.Hour, header: events}, {after: 2 * time.Second, header: events, body: "data: 1\n\n", rest: time.Hour},
		}}
		client := newTimedClient(timed{3 * time.Second, 2}, back, l, oneLane, quiet())
		resp, err := client.RoundTrip(post(t.Context(), t, "q"))
		require.NoError(t, err)
		assert.Equal(t, 1, back.open, "it goes on")
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "data: 1\n\n", string(text))
		require.NoError(t, resp.Body.Close())
		assert.Len(t, back.seen, 2)

		long := strings.Repeat("x", maxAnswer+1)
		back = &script{t: t, steps: []step{{body: long, rest: time.Hour}}}
		resp, err = newTimedClient(timed{3 * time.Second, 2}, back, l, oneLane, quiet()).RoundTrip(post(t.Context(), t, "q"))
		require.NoError(t, err)
		text, err = io.ReadAll(resp.Body)
		var late *timeoutError
		require.ErrorAs(t, err, &late)
		assert.Len(t, text, len(long))
		require.NoError(t, resp.Body.Close())
		assert.Len(t, back.seen, 1, "what was passed on cannot be taken back")
		assert.Zero(t, back.open)
	})
}

// Bodies are kept up to a size; a larger one is sent once, whole, whether its length
// is known or not.
func TestBodiesAreKept(t *testing.T) {
	for _, size := range []int{0, 1, maxKept - 1, maxKept, maxKept + 1, maxKept + 100_000} {
		for _, known := range []bool{true, false} {
			t.Run(strconv.Itoa(size)+" known="+strconv.FormatBool(known), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					back := &script{t: t, steps: []step{{status: 503}}}
					body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
					r := post(t.Context(), t, string(body))
					if !known {
						r.ContentLength = -1
					}
					resp, err := newTimedClient(timed{0, 3}, back, nil, oneLane, quiet()).RoundTrip(r)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					want := 3
					if size > maxKept {
						want = 1
					}
					require.Len(t, back.seen, want)
					for _, a := range back.seen {
						require.Len(t, a.body, size)
						require.Equal(t, sha256.Sum256(body), sha256.Sum256([]byte(a.body)))
					}
				})
			})
		}
	}
}

// A body that breaks off is the caller's fault: nothing is sent.
func TestBrokenBodyIsNotSent(t *testing.T) {
	both(t, func(t *testing.T, l *inflight.Limiter) { //nolint:thelper // it is the test
		back := &script{t: t, steps: []step{{}}}
		r := post(t.Context(), t, "")
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{errDown})), 10
		_, err := newTimedClient(timed{0, 3}, back, l, oneLane, quiet()).RoundTrip(r) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, errDown)
		assert.Empty(t, back.seen)
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
