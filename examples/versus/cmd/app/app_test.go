package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hang is how long anything here may take at the most.
const hang = time.Minute

// post sends a body to a handler and returns its answer.
func post(ctx context.Context, h http.Handler, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, body))
	return w
}

// Each middleware lets in its limit and no more. Who finds it full waits where there
// is a queue, and is refused where there is none or no room in it, with a status that
// the storm takes for a refusal.
func TestPeers(t *testing.T) {
	for name, queue := range map[string]struct {
		waits   int // of three that find it full
		refusal int
	}{
		"chi":      {2, http.StatusTooManyRequests},
		"failsafe": {3, 0},
		"gozero":   {0, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := find(name)
			require.NoError(t, err)
			const limit = 3
			a := &app{with: name, limit: limit}
			h := a.handler(p.wrap(room{limit: limit, backlog: 2, wait: hang}))
			becomes := func(inside, waiting int) {
				t.Helper()
				require.Eventually(t, func() bool {
					s := a.status()
					return s.Inflight == inside && s.Waiting == waiting
				}, hang, time.Millisecond, "%d inside and %d waiting", inside, waiting)
			}
			var wg sync.WaitGroup
			var codes [2 * limit]int
			body, sender := io.Pipe() // those inside read it until it ends
			for i := range codes {
				send := func() { codes[i] = post(t.Context(), h, "/echo", body).Code }
				if i >= limit+queue.waits {
					send() // it is refused at once
					continue
				}
				wg.Go(send)
				becomes(min(i+1, limit), max(i+1-limit, 0))
			}
			require.NoError(t, sender.Close())
			wg.Wait()
			becomes(0, 0)
			for i, code := range codes {
				want := http.StatusOK
				if i >= limit+queue.waits {
					want = queue.refusal
				}
				assert.Equal(t, want, code, "request %d", i)
			}
		})
	}
}

// Who has waited too long is refused too.
func TestPeersGiveUp(t *testing.T) {
	for _, name := range []string{"chi", "failsafe"} {
		t.Run(name, func(t *testing.T) {
			p, err := find(name)
			require.NoError(t, err)
			a := &app{with: name, limit: 1}
			h := a.handler(p.wrap(room{limit: 1, backlog: 1, wait: time.Millisecond}))
			body, sender := io.Pipe()
			var wg sync.WaitGroup
			wg.Go(func() { assert.Equal(t, http.StatusOK, post(t.Context(), h, "/echo", body).Code) })
			require.Eventually(t, func() bool { return a.status().Inflight == 1 }, hang, time.Millisecond)
			assert.Equal(t, http.StatusTooManyRequests, post(t.Context(), h, "/echo", nil).Code)
			require.NoError(t, sender.Close())
			wg.Wait()
		})
	}
}

func plain(next http.Handler) http.Handler { return next }

// The answer is the gateway's.
func TestEcho(t *testing.T) {
	a := &app{with: "chi", limit: 3}
	h := a.handler(plain)
	w := post(t.Context(), h, "/echo?hold=1ms", strings.NewReader("hello"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.JSONEq(t, `{"bytes":5,"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}`, w.Body.String())
	for _, bad := range []string{"-1s", "2h", "soon"} {
		w := post(t.Context(), h, "/echo?hold="+bad, nil)
		assert.Equal(t, http.StatusBadRequest, w.Code)
		assert.Contains(t, w.Body.String(), "hold is \""+bad+"\": want a duration from 0s to 1h0m0s")
	}
	cut := io.MultiReader(strings.NewReader("hel"), iotestErr{})
	assert.Equal(t, http.StatusBadRequest, post(t.Context(), h, "/echo", cut).Code)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { post(gone, h, "/echo?hold=1h", nil) })
	assert.Equal(t, status{With: "chi", Limit: 3}, a.status(), "whatever happens, all is over in the end")
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The status counts the bytes of those inside as they declare them.
func TestStatus(t *testing.T) {
	a := &app{with: "chi", limit: 3}
	h := a.handler(plain)
	body, sender := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/echo", body)
		r.ContentLength = 1000
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
	_, err := sender.Write([]byte("it is inside now"))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status", nil))
	assert.JSONEq(t, `{"with": "chi", "limit": 3, "inflight": 1, "inflight_bytes": 1000, "waiting": 0}`, w.Body.String())
	require.NoError(t, sender.Close())
	wg.Wait()
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-limit 4", `-with is "": want one of chi, failsafe, gozero`},
		{"-with nginx -limit 4", `-with is "nginx": want one of chi, failsafe, gozero`},
		{"-with chi", "-limit is 0: want at least 1"},
		{"-with chi -limit 1 -backlog -1", "-backlog is -1: want at least 0"},
		{"-with chi -limit 1 -wait 0s", "-wait is 0s: want more than 0"},
		{"-with chi -limit 1 more", `unexpected argument "more"`},
		{"-nonsense", "flag provided but not defined"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, run(t.Context(), strings.Fields(c.args), &stdout, &stderr), c.args)
		assert.Contains(t, stderr.String(), c.want)
		assert.Empty(t, stdout.String())
	}
	var help bytes.Buffer
	assert.Equal(t, 0, run(t.Context(), []string{"-h"}, io.Discard, &help))
	assert.Contains(t, help.String(), "chi, failsafe, gozero")
	var stderr bytes.Buffer
	assert.Equal(t, 1, run(t.Context(), []string{"-with", "chi", "-limit", "1", "-addr", "256.0.0.1:0"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "256.0.0.1")
}

// The program says where it listens, serves, and lets a request that runs end.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said, says := io.Pipe()
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code <- run(ctx, []string{"-with", "gozero", "-limit", "2"}, says, &stderr)
	}()
	line := make([]byte, 100)
	n, err := said.Read(line)
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "listening on ")
	require.True(t, ok, "%s", line)

	answer := make(chan error, 1)
	body, sender := io.Pipe()
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/echo", body)
		if err != nil {
			answer <- err
			return
		}
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			var got struct{ Bytes int }
			err = json.NewDecoder(resp.Body).Decode(&got)
			assert.Equal(t, 3, got.Bytes)
			_ = resp.Body.Close()
		}
		answer <- err
	}()
	_, err = sender.Write([]byte("abc"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return inflight(t, url) == 1 }, hang, time.Millisecond)
	stop()
	require.NoError(t, sender.Close())
	require.NoError(t, <-answer)
	assert.Equal(t, 0, <-code, stderr.String())
}

func inflight(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/status", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var s status
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s.Inflight
}
