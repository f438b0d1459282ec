package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bytes of a body come back when the back end answers. So streams do not pin the
// budget: 40 bodies of 1 MiB pass through 8 MiB, and all 40 streams run at once.
func TestStreamsDoNotPinTheBudget(t *testing.T) {
	const streams = 40
	back := models(t, time.Hour) // none of them ends by itself
	a := start(t, smallBudget, "-upstream", back.URL)
	ctx, leave := context.WithCancel(t.Context())
	var clients, heads sync.WaitGroup
	heads.Add(streams)
	for i := range streams {
		req := a.request(apis[i%len(apis)].path, question(true, mib)).WithContext(ctx)
		clients.Go(func() {
			resp, err := a.client.Transport.RoundTrip(req)
			heads.Done()
			if assert.NoError(t, err) {
				_, _, err = read(resp)
				assert.ErrorIs(t, err, context.Canceled)
			}
		})
	}
	back.until("all streams at once", func(s upstream.Stats) bool { return s.Concurrent == streams && s.Waiting == 0 })
	a.until("all bytes are back", func(s status) bool { return s["inflight_bytes"] == 0 && s["waiting"] == 0 })
	assert.EqualValues(t, streams, a.status()["admitted_total"])
	heads.Wait()
	leave()
	clients.Wait()
	back.until("all given up", func(s upstream.Stats) bool { return s.Abandoned == streams && s.Concurrent == 0 })
	a.untilZero()
}

// Where bytes come back only when the handler returns, streams do pin the budget: this
// is what the test above would see if they did.
func TestStreamsPinTheBudgetUntilReturn(t *testing.T) {
	back := models(t, time.Hour)
	a := start(t, strings.Replace(smallBudget, "admission: {", "admission: {release_at: return, ", 1), "-upstream", back.URL)
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 9 {
		req := a.request("/v1/messages", question(true, mib)).WithContext(ctx)
		clients.Go(func() {
			if resp, err := a.client.Transport.RoundTrip(req); err == nil {
				_, _, _ = read(resp)
			}
		})
	}
	a.until("eight hold the budget, one waits", func(s status) bool {
		return s["inflight_bytes"] == 8*mib && s["waiting"] == 1
	})
	back.until("eight streams", func(s upstream.Stats) bool { return s.Concurrent == 8 && s.Waiting == 0 })
	assert.EqualValues(t, 8*mib, a.status()["inflight_bytes"])
	leave()
	clients.Wait()
	a.untilZero()
}

// The same with streams that last for real: 40 streams of 10 s with bodies of 1 MiB all
// succeed on a budget of 8 MiB. Only a machine that is too busy to move the bodies would
// make a difference between these settings and the default ones.
func TestFortyStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s of real time, which is what it is about; -short leaves it out")
	}
	t.Parallel()
	const streams = 40
	back := models(t, 10*time.Second)
	a := start(t, smallBudget, "-upstream", back.URL)
	var clients sync.WaitGroup
	for i := range streams {
		path := apis[i%len(apis)].path
		clients.Go(func() {
			resp, err := a.client.Transport.RoundTrip(a.request(path, question(true, mib)))
			if err != nil {
				t.Error(err)
				return
			}
			head, answer, err := read(resp)
			if err != nil {
				t.Error(err)
			}
			assert.Equal(t, 200, head.StatusCode, answer)
			end := map[string]string{apis[0].path: "[DONE]", apis[1].path: "message_stop", apis[2].path: "response.completed"}[path]
			assert.Contains(t, answer, end, "the stream is whole")
		})
	}
	over := make(chan struct{})
	go func() { clients.Wait(); close(over) }()
	for polls, running := 0, true; running; polls++ {
		select {
		case <-over:
			running = false
			require.Positive(t, polls)
		case <-time.After(20 * time.Millisecond): // a look at the status now and then
			assert.LessOrEqual(t, a.status()["inflight_bytes"], int64(8*mib))
		}
	}
	s := back.model.Stats()
	assert.EqualValues(t, streams, s.Completed)
	assert.Zero(t, s.Abandoned)
	assert.Zero(t, a.status()["shed_total"])
	a.untilZero()
}
