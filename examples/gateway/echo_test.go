package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// random returns n bytes, other ones for each n.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b)
	return b
}

// requireEcho checks an answer of POST /echo against what was sent.
func requireEcho(t *testing.T, sent []byte, resp reply, answer string) {
	t.Helper()
	require.Equal(t, 200, resp.StatusCode, answer)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	sum := sha256.Sum256(sent)
	assert.JSONEq(t, `{"bytes": `+strconv.Itoa(len(sent))+`, "sha256": "`+hex.EncodeToString(sum[:])+`"}`, answer)
}

// Every body comes through whole, whatever its size and framing, with headgate and
// without.
func TestEcho(t *testing.T) {
	for _, mode := range everyMode() {
		a := start(t, "admission: {max_inflight_bytes: 64MiB}", mode)
		for _, n := range []int{0, 1, 28_000, 64 << 10, 64<<10 + 1, 256 << 10, 5 * mib} {
			body := random(n)
			for framing, reader := range map[string]io.Reader{
				"known length": bytes.NewReader(body),
				"chunked":      struct{ io.Reader }{bytes.NewReader(body)},
			} {
				t.Run(mode+" "+strconv.Itoa(n)+" "+framing, func(t *testing.T) {
					resp, answer := a.in(t).do(http.MethodPost, "/echo", reader)
					requireEcho(t, body, resp, answer)
				})
			}
		}
		if mode != "-bare" {
			a.untilZero()
		}
	}
}

// A client that waits for "100 Continue" gets it, but not before there is room.
func TestEchoExpectContinue(t *testing.T) {
	a := start(t, smallBudget)
	release := a.fill()
	body := random(mib)
	c := a.dial()
	c.body = string(body)
	c.post("/echo", "Content-Length: "+strconv.Itoa(len(body)), "Expect: 100-continue")
	if !a.fiberCannot(noContinue) {
		a.until("it waits", func(s status) bool { return s["waiting"] == 1 })
		assert.Zero(t, c.r.Buffered())
	}
	release()

	c.continues()
	_, err := c.Write(body[c.ahead:])
	require.NoError(t, err)
	resp, answer := c.answer()
	requireEcho(t, body, resp, answer)
	a.untilZero()
}

// A held request keeps its bytes until its time is over or its client leaves.
func TestEchoHold(t *testing.T) {
	a := start(t, smallBudget)
	resp, answer := a.do(http.MethodPost, "/echo?hold=20ms", strings.NewReader("held"))
	requireEcho(t, []byte("held"), resp, answer)

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := a.try(ctx, http.MethodPost, "/echo?hold=1h", bytes.NewReader(random(3*mib)))
		left <- err
	}()
	a.until("3 MiB in flight", func(s status) bool { return s["inflight_bytes"] == 3*mib && s["inflight"] == 1 })
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	a.untilZero()
}

// A client that has only closed its sending side is not told 200 for a hold that
// was not kept.
func TestEchoHalfClosed(t *testing.T) {
	a := start(t, smallBudget)
	c := a.dial()
	c.post("/echo?hold=1h", "Content-Length: 2")
	c.say("hi")
	require.NoError(t, c.CloseWrite())
	rest, err := io.ReadAll(c.r)
	require.NoError(t, err)
	assert.Empty(t, rest)
	a.untilZero()
}

func TestRoutes(t *testing.T) {
	for _, mode := range everyMode() {
		a := start(t, "", mode)
		for _, c := range []struct {
			method, path string
			status       int
			answer       string
		}{
			{"GET", "/healthz", 200, "ok\n"},
			{"HEAD", "/healthz", 200, ""},
			{"GET", "/echo", 405, ""},
			{"PUT", "/echo", 405, ""},
			{"POST", "/healthz", 405, ""},
			{"POST", "/headgate/status", 405, ""},
			{"GET", "/", 404, ""},
			{"POST", "/echo/x", 404, ""},
			{"POST", "/echo?hold=soon", 400, "hold is \"soon\": want a duration from 0s to 1h0m0s, such as 2s\n"},
			{"POST", "/echo?hold=2", 400, "hold is \"2\": want a duration from 0s to 1h0m0s, such as 2s\n"},
			{"POST", "/echo?hold=-1s", 400, "hold is \"-1s\": want a duration from 0s to 1h0m0s, such as 2s\n"},
			{"POST", "/echo?hold=61m", 400, "hold is \"61m\": want a duration from 0s to 1h0m0s, such as 2s\n"},
			{"POST", "/echo?hold=" + strings.Repeat("9", 1000) + "s", 400, "hold is \"" + strings.Repeat("9", 40) + "\": want a duration from 0s to 1h0m0s, such as 2s\n"},
		} {
			resp, answer := a.do(c.method, c.path, nil)
			assert.Equal(t, c.status, resp.StatusCode, c)
			if c.status < 404 { // the others have the framework's own text, see TestFrameworksAnswerAlike
				assert.Equal(t, c.answer, answer, c)
			}
			if c.status == 405 {
				assert.NotEmpty(t, resp.Header.Get("Allow"))
			}
			assert.Empty(t, resp.Header.Get("Headgate-Reason"), "it is no refusal of a gate")
		}
	}
}

// The answer to a bad parameter does not wait for the body.
func TestBadHoldIsAnsweredAtOnce(t *testing.T) {
	a := start(t, "")
	c := a.dial()
	c.post("/echo?hold=x", "Content-Length: 1000000")
	resp, _ := c.answer()
	assert.Equal(t, 400, resp.StatusCode)
	c.closed()
	a.untilZero()
}

// The status has a snapshot under its package's name, and nothing without headgate.
func TestStatus(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 64MiB}")
	s := a.status()
	assert.EqualValues(t, 64*mib, s["max_inflight_bytes"])
	assert.Zero(t, s["inflight"], "the status counts itself")
	resp, text := a.do(http.MethodGet, "/headgate/status", nil)
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	var packages map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &packages))
	require.Len(t, packages, 4)
	assert.Equal(t, "normal", packages["pressure"]["severity"])
	assert.Equal(t, "shadow", packages["lanes"]["mode"])
	assert.Equal(t, map[string]any{"enabled": false}, packages["inflight"])
	assert.Equal(t, "enforce", packages["admission"]["mode"])
	assert.Equal(t, "override", packages["admission"]["budget_source"])

	_, text = start(t, "", "-bare").do(http.MethodGet, "/headgate/status", nil)
	assert.JSONEq(t, `{}`, text)
}
