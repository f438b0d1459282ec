package main

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tenant's calls stand in the tenant's lane once the key is known: with the lanes of one
// tenant full, its next call is refused in the API's shape, another tenant waits, and a
// wrong key is told so before that. The limits can change while they do.
func TestTenantLanes(t *testing.T) {
	const text = threeTenants + `
lanes: {mode: enforce, virtual_lanes: true, algorithm: fixed, min_limit: 6, initial_limit: 6, max_queue_count: 1, max_wait: 30s}
`
	for _, flag := range everyFramework() {
		t.Run(flag, func(t *testing.T) {
			next := make(chan struct{})
			back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answerAt(next)(w, r)
				writeJSON(w, http.StatusOK, struct{}{})
			}))
			a := start(t, text, "-upstream", back.URL, flag)
			var calls sync.WaitGroup
			send := func(key string) {
				a.beside(&calls, a.request("/v1/chat/completions", "{}", "Authorization", "Bearer "+key), a.answered)
			}
			lanes := func(what string, inflight int64, queued int) {
				t.Helper()
				a.until(what, func(status) bool {
					s := a.snapshot().Lanes
					return s.Inflight == inflight && s.QueuedCount == queued
				})
			}
			send("secret-alice")
			lanes("one is in", 1, 0)
			send("secret-alice")
			lanes("one waits", 1, 1)
			send("secret-batch")
			lanes("another tenant waits too", 1, 2)

			resp, answer := a.ask("/v1/chat/completions", "{}", "Authorization", "Bearer secret-alice")
			require.Equal(t, 429, resp.StatusCode, answer)
			assert.Equal(t, "tenant_queue_full", resp.Header.Get("Headgate-Reason"))
			assert.NotEmpty(t, resp.Header.Get("Retry-After"))
			assert.Contains(t, answer, `"error"`)
			resp, _ = a.ask("/v1/chat/completions", "{}", "Authorization", "Bearer secret-eve")
			assert.Equal(t, 401, resp.StatusCode)
			requireNoSecrets(t, answer, a.log.String())

			a.write(text + "log_level: warn\n")
			close(next)
			calls.Wait()
			lanes("all are done", 0, 0)
			back.done(3)
			a.untilZero()
		})
	}
}

// Without enforcement a lane refuses nobody and says what it would have done.
func TestTenantLanesInShadow(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerAt(next)(w, r)
		writeJSON(w, http.StatusOK, struct{}{})
	}))
	a := start(t, "lanes: {min_limit: 6, initial_limit: 6, max_queue_count: 0}", "-upstream", back.URL)
	var calls sync.WaitGroup
	for range 3 {
		req := a.request("/v1/chat/completions", "{}")
		calls.Go(func() {
			resp, err := a.client.Do(req)
			if assert.NoError(t, err) {
				head, answer, err := read(resp)
				assert.NoError(t, err)
				assert.Equal(t, 200, head.StatusCode, answer)
			}
		})
	}
	a.until("all are in", func(status) bool { return a.snapshot().Lanes.Inflight == 3 })
	s := a.snapshot().Lanes
	assert.Equal(t, []int64{1, 0, 2}, []int64{s.WouldAdmit, s.WouldQueue, s.WouldRefuse})
	close(next)
	calls.Wait()
	a.untilZero()
}
