package main

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func onlyLane(t *testing.T, l *inflight.Limiter) inflight.LaneSnapshot {
	t.Helper()
	lanes := l.Snapshot().Lanes
	require.Len(t, lanes, 1)
	return lanes[0]
}

// occupy holds a slot of the only lane for d.
func occupy(t *testing.T, l *inflight.Limiter, d time.Duration) {
	t.Helper()
	lease, err := l.Acquire(t.Context(), gate.Request{Lane: oneLane(nil)})
	require.NoError(t, err)
	time.AfterFunc(d, lease.Release)
}

// The wait for a slot, before the first attempt and before later ones, is in no
// attempt's time.
func TestWaitIsNotInTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, 1, time.Hour)
		defer l.Close()
		occupy(t, l, time.Minute)
		// The 429 pauses the lane for 40 s.
		back := &script{t: t, steps: []step{{after: 2 * time.Second, status: 429, header: http.Header{"Retry-After": {"40"}}}, {after: 2 * time.Second}}}
		begin := time.Now()
		resp, err := newTimedClient(timed{3 * time.Second, 2}, back, l, oneLane, quiet()).RoundTrip(post(t.Context(), t, "q"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 200, resp.StatusCode)
		assert.GreaterOrEqual(t, time.Since(begin), 104*time.Second)
		require.Len(t, back.seen, 2)
		s := onlyLane(t, l)
		assert.EqualValues(t, 1, s.Retries)
		assert.Zero(t, s.Inflight)
	})
}

// The slot is free during the pause, and the retry goes before who came after the call.
func TestRetryKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, 1, time.Hour)
		defer l.Close()
		back := &script{t: t, steps: []step{{status: 503}, {}}}
		client := newTimedClient(timed{0, 2}, back, l, oneLane, quiet())
		order := make(chan string, 4)
		r := post(t.Context(), t, "q")
		go func() {
			resp, err := client.RoundTrip(r)
			if assert.NoError(t, err) {
				_ = resp.Body.Close()
			}
			order <- "retry"
		}()
		synctest.Wait() // it pauses
		assert.Zero(t, onlyLane(t, l).Inflight)
		occupy(t, l, 10*time.Second)
		for range 3 {
			time.Sleep(time.Millisecond)
			go func() {
				lease, err := l.Acquire(context.Background(), gate.Request{Lane: oneLane(nil)})
				if assert.NoError(t, err) {
					order <- "newcomer"
					lease.Release()
				}
			}()
		}
		assert.Equal(t, "retry", <-order)
		for range 3 {
			assert.Equal(t, "newcomer", <-order)
		}
	})
}

// A refusal ends the call: nothing is sent, or nothing more, and the error is the refusal.
func TestRefusalIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, 1, 10*time.Second)
		defer l.Close()
		occupy(t, l, time.Minute)
		back := &script{t: t, steps: []step{{}}}
		client := newTimedClient(timed{time.Second, 3}, back, l, oneLane, quiet())
		begin := time.Now()
		_, err := client.RoundTrip(post(t.Context(), t, "q")) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, gate.QueueTimeout)
		assert.Equal(t, 10*time.Second, time.Since(begin))
		assert.Empty(t, back.seen)

		// In the midst of a call, too.
		time.Sleep(time.Minute)
		back.steps = []step{{status: 503}}
		time.AfterFunc(100*time.Millisecond, func() { occupy(t, l, time.Minute) })
		_, err = client.RoundTrip(post(t.Context(), t, "q")) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, gate.QueueTimeout)
		assert.Len(t, back.seen, 1)
		time.Sleep(time.Minute)
	})
}

// A caller that leaves ends its call wherever it stands: in the queue, in an attempt, in
// a pause.
func TestCallerLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		busy time.Duration
		step step
	}{
		"queue":   {busy: time.Hour},
		"attempt": {step: step{after: time.Hour}},
		"pause":   {step: step{status: 503, header: http.Header{"Retry-After": {"50"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiterOf(t, 1, 2*time.Hour)
				defer l.Close()
				if c.busy > 0 {
					occupy(t, l, c.busy)
				}
				back := &script{t: t, steps: []step{c.step}}
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(20*time.Second, leave)
				begin := time.Now()
				_, err := newTimedClient(timed{time.Minute, 9}, back, l, oneLane, quiet()).RoundTrip(post(ctx, t, "q")) //nolint:bodyclose // there is none
				require.ErrorIs(t, err, context.Canceled)
				assert.Equal(t, 20*time.Second, time.Since(begin))
				assert.LessOrEqual(t, len(back.seen), 1)
				assert.Zero(t, back.open)
				time.Sleep(c.busy)
				assert.Zero(t, onlyLane(t, l).Inflight)
			})
		})
	}
}

// Calls with models wait in their lanes, and what was read to find the model is sent.
func TestTimedLanesByModel(t *testing.T) {
	for _, attempts := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := limiterOf(t, 1, time.Hour)
			defer l.Close()
			back := &script{t: t, steps: []step{{}}}
			client := newTimedClient(timed{time.Second, attempts}, back, l, clientwrap.LaneByModel("http://back.test", "large"), quiet())
			for _, q := range []string{`{"model": "large"}`, `{"model": "invented"}`} {
				resp, err := client.RoundTrip(post(t.Context(), t, q))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, q, back.seen[len(back.seen)-1].body)
			}
			var lanes []string
			for _, s := range l.Snapshot().Lanes {
				lanes = append(lanes, s.Lane)
				assert.EqualValues(t, 1, s.Granted)
			}
			assert.Equal(t, []string{"http://back.test|large", "http://back.test|other"}, lanes)
		})
	}
}

// The context of attempts ends with the call's and has its class and flow, and nothing
// that the request holds.
func TestApart(t *testing.T) {
	type key struct{}
	budget := limiterOf(t, 1, time.Hour) // any gate will do
	ctx, leave := context.WithCancel(context.WithValue(context.Background(), key{}, 1))
	ctx = gate.WithClass(gate.WithFlow(ctx, "tenant", 7), gate.Interactive)
	lease, err := budget.Acquire(ctx, gate.Request{Lane: "l"})
	require.NoError(t, err)
	defer lease.Release()
	ctx = lease.In(ctx, budget)
	out := apart(ctx)
	_, held := gate.LeaseOf(ctx, budget)
	assert.True(t, held)
	_, held = gate.LeaseOf(out, budget)
	assert.False(t, held)
	assert.Equal(t, gate.Interactive, gate.ClassOf(out))
	in := gate.Request{}.In(out)
	assert.Equal(t, "tenant", in.Flow)
	assert.Equal(t, 7, in.Weight)
	assert.Nil(t, out.Value(key{}))
	below, cancel := context.WithCancel(out)
	defer cancel()
	leave()
	<-below.Done()
	require.ErrorIs(t, out.Err(), context.Canceled)
	in = gate.Request{}.In(apart(context.Background()))
	assert.Empty(t, in.Flow)
	assert.Equal(t, gate.Default, gate.ClassOf(apart(context.Background())))
}
