package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallBudget is the smallest budget that there is, without slow senders being cut.
const smallBudget = `admission: {max_inflight_bytes: 8MiB, queue_timeout: 1m, body_idle: 1m, min_body_rate: 0, min_body_rate_waiting: 0}`

// fill takes the whole budget of 8 MiB. release gives it back.
func (a *app) fill() (release func()) {
	a.t.Helper()
	c := a.dial()
	c.post("/echo", "Content-Length: "+strconv.Itoa(8*mib)) // reserved whole before it is read
	a.until("the budget is full", func(s status) bool { return s["inflight_bytes"] == 8*mib })
	return c.reset
}

// requireRefused checks an answer of a gate.
func requireRefused(t *testing.T, resp reply, answer string, status int, reason string) {
	t.Helper()
	require.Equal(t, status, resp.StatusCode, answer)
	assert.Equal(t, reason, resp.Header.Get("Headgate-Reason"))
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	var p struct {
		Code   string
		Status int
		Detail string
		Gate   string
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &p), answer)
	assert.Equal(t, reason, p.Code)
	assert.Equal(t, status, p.Status)
	assert.Equal(t, "admission", p.Gate)
	assert.Contains(t, p.Detail, "refused locally")
	if status == http.StatusServiceUnavailable {
		s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		require.NoError(t, err)
		assert.Positive(t, s)
	} else {
		assert.Empty(t, resp.Header.Get("Retry-After"))
	}
}

// A health check and a small body on its path need no room.
func TestHealthzIsExempt(t *testing.T) {
	a := start(t, smallBudget)
	release := a.fill()
	resp, answer := a.do(http.MethodGet, "/healthz", nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "ok\n", answer)
	resp, _ = a.do(http.MethodPost, "/healthz", strings.NewReader("a body that would have to wait"))
	assert.Equal(t, 405, resp.StatusCode)
	assert.Zero(t, a.status()["queued_total"])
	release()
	a.untilZero()
}

// The list of exempt paths can be another one, and none.
func TestExemptIsConfigured(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, queue_timeout: 0s, exempt: []}")
	release := a.fill()
	resp, answer := a.do(http.MethodPost, "/healthz", strings.NewReader("x"))
	requireRefused(t, resp, answer, 503, "queue_timeout")
	release()
	a.untilZero()
}

func TestRefusedByLength(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 16MiB}")
	for _, c := range []struct {
		length int
		reason string
	}{
		{8*mib + 1, "body_exceeds_budget"},
		{16 * mib, "body_exceeds_budget"},
		{16*mib + 1, "payload_too_large"},
	} {
		conn := a.dial()
		conn.post("/echo", "Content-Length: "+strconv.Itoa(c.length)) // nothing of it is sent
		resp, answer := conn.answer()
		requireRefused(t, resp, answer, 413, c.reason)
		assert.True(t, resp.Close)
		conn.closed()
	}
	s := a.status()
	assert.EqualValues(t, 3, s["shed_total"])
	a.untilZero()
}

func TestQueueTimeout(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, queue_timeout: 100ms}")
	release := a.fill()
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader("no room"))
	requireRefused(t, resp, answer, 503, "queue_timeout")
	assert.EqualValues(t, 1, a.status()["queued_total"])
	release()
	a.untilZero()
	body := random(mib)
	resp, answer = a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
	requireEcho(t, body, resp, answer)
}

// A full queue refuses at once.
func TestQueueFull(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB, queue_timeout: 1m, max_waiters: 0}")
	release := a.fill()
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader("no place"))
	requireRefused(t, resp, answer, 503, "admission_busy")
	release()
	a.untilZero()
}

// A body of unknown length that no longer fits is refused while it is read.
func TestNoRoomToGrow(t *testing.T) {
	a := start(t, smallBudget)
	c := a.dial()
	c.post("/echo", "Content-Length: "+strconv.Itoa(8*mib-100<<10)) // leaves room for one step
	a.until("the budget is almost full", func(s status) bool { return s["inflight_bytes"] > 7*mib })
	resp, answer := a.do(http.MethodPost, "/echo", &endless{mib})
	requireRefused(t, resp, answer, 503, "admission_busy")
	c.reset()
	a.untilZero()
}

func TestSlowBody(t *testing.T) {
	a := start(t, "admission: {body_idle: 100ms}")
	for name, head := range map[string]string{"known length": "Content-Length: 1000", "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			c := a.in(t).dial()
			switch {
			case name == "chunked":
				c.post("/echo", head)
				c.say("3\r\nabc\r\n")
			case a.in(t).fiberCannot(noSmallBody):
				c.post("/echo", head+"00")
			default:
				c.post("/echo", head)
				c.say("abc")
			}
			resp, answer := c.answer()
			requireRefused(t, resp, answer, 408, "slow_body")
			c.closed()
		})
	}
	a.untilZero()
}

// In shadow mode and without headgate nothing is refused.
func TestNothingIsRefused(t *testing.T) {
	for _, c := range []struct{ yaml, arg string }{
		{"admission: {mode: shadow, max_inflight_bytes: 8MiB, hard_max_body_bytes: 1KiB}", "-framework=nethttp"},
		{"admission: {mode: off, max_inflight_bytes: 8MiB, hard_max_body_bytes: 1KiB}", "-framework=nethttp"},
		{"admission: {max_inflight_bytes: 8MiB, hard_max_body_bytes: 1KiB}", "-bare"},
	} {
		a := start(t, c.yaml, c.arg)
		body := random(9 * mib)
		resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
		requireEcho(t, body, resp, answer)
		if strings.Contains(c.yaml, "shadow") {
			assert.EqualValues(t, 1, a.status()["would_refuse_total"])
		}
	}
}

// At level debug the log says what was decided about each request, by its route.
func TestDecisionsAreLogged(t *testing.T) {
	for _, mode := range everyFramework() {
		a := start(t, "log_level: debug\nadmission: {hard_max_body_bytes: 4}", mode)
		a.do(http.MethodPost, "/echo", strings.NewReader("secret"))
		a.do("BREW", "/secret", nil)
		a.logs(`msg=decision method=POST route="POST /echo" waited=0s error="refused locally`)
		a.logs(`msg=decision method=other route=unmatched waited=0s error=<nil>`)
		assert.NotContains(t, a.log.String(), "secret")
	}
}
