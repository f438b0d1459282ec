package clientwrap_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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

// The traps of this file: retries.

// retry does what SDKs do: it closes the response, sleeps, and sends again, until the
// answer is no 500.
func retry(tb testing.TB, ctx context.Context, tr http.RoundTripper, backoff time.Duration, sleeping func()) *http.Response {
	tb.Helper()
	for {
		resp, err := tr.RoundTrip(request(tb, ctx, nil))
		if !assert.NoError(tb, err) || resp.StatusCode != http.StatusInternalServerError {
			return resp
		}
		assert.NoError(tb, resp.Body.Close())
		if sleeping != nil {
			sleeping()
		}
		time.Sleep(backoff)
	}
}

// failsFirst fails the first n requests and notes in which order names were served.
type failsFirst struct {
	mu     sync.Mutex
	n      int
	served []string
	takes  time.Duration
}

type whoKey struct{}

func as(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, whoKey{}, who)
}

func (f *failsFirst) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.served)
}

func (f *failsFirst) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	who, _ := r.Context().Value(whoKey{}).(string)
	f.served = append(f.served, who)
	if f.n--; f.n >= 0 {
		return answer(r, http.StatusInternalServerError, text("sorry")), nil
	}
	return answer(r, http.StatusOK, http.NoBody), nil
}

// While a client sleeps before its next attempt it holds nothing.
func TestTrap14_SlotDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(&failsFirst{n: 3}, l, clientwrap.Config{})
		slept := 0
		resp := retry(t, inflight.WithCall(context.Background()), tr, time.Minute, func() {
			slept++
			assert.Equal(t, 0, inFlight(l))
			give := hold(t, l) // somebody else can have it
			give()
		})
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, 3, slept)
		assert.EqualValues(t, 3, lane(t, l).Retries)
		l.Close()
	})
}

// A retry stands where the first attempt would stand, in its class.
func TestTrap15_RetryKeepsItsPlace(t *testing.T) {
	for name, ticket := range map[string]bool{"with a ticket": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1)
				base := &failsFirst{n: 1, takes: time.Second}
				tr := clientwrap.NewTransport(base, l, clientwrap.Config{})
				call := as(context.Background(), "retries")
				if ticket {
					call = inflight.WithCall(call)
				}
				var all sync.WaitGroup
				all.Go(func() { retry(t, call, tr, 500*time.Millisecond, nil) })
				synctest.Wait()
				for i := range 3 { // they arrive after the first attempt, before the second
					time.Sleep(time.Millisecond)
					all.Go(func() { retry(t, as(context.Background(), fmt.Sprint("later ", i)), tr, 0, nil) })
				}
				all.Wait()
				want := []string{"retries", "later 0", "later 1", "later 2", "retries"}
				if ticket {
					want = []string{"retries", "later 0", "retries", "later 1", "later 2"}
				}
				assert.Equal(t, want, base.seen())
				l.Close()
			})
		})
	}
}

// Who waits before retrying is not in the queue: its age counts only when it comes
// back. And bulk work stays bulk work in its second attempt.
func TestTrap16_RetryJumpsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		base := &failsFirst{n: 1, takes: time.Second}
		tr := clientwrap.NewTransport(base, l, clientwrap.Config{})
		bulk := inflight.WithCall(gate.WithClass(as(context.Background(), "bulk"), gate.Bulk))
		var all sync.WaitGroup
		all.Go(func() { retry(t, bulk, tr, 1500*time.Millisecond, nil) })
		synctest.Wait()
		for i := range 3 {
			time.Sleep(time.Millisecond)
			all.Go(func() { retry(t, as(context.Background(), fmt.Sprint("default ", i)), tr, 0, nil) })
		}
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"bulk", "default 0"}, base.seen(), "nothing waits for who sleeps")
		all.Wait()
		assert.Equal(t, []string{"bulk", "default 0", "default 1", "default 2", "bulk"}, base.seen())
		l.Close()
	})
}

// A refusal says in all ways that it is not to be retried, and a call that retries all
// the same gets the same answer at once. (What real clients make of it: sdktest.)
func TestTrap17_QueueTimeoutIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, func(c *inflight.Config) { c.QueueTimeout = 10 * time.Second })
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		defer hold(t, l)()
		begin, ctx := time.Now(), inflight.WithCall(context.Background())
		for range 5 {
			resp, err := tr.RoundTrip(request(t, ctx, nil))
			require.NoError(t, err)
			assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			assert.Equal(t, "false", resp.Header.Get("X-Should-Retry"))
			assert.Equal(t, "queue_timeout", resp.Header.Get(gate.MarkerHeader))
			assert.Regexp(t, `^[1-9][0-9]*$`, resp.Header.Get("Retry-After"))
			assert.Equal(t, gate.QueueTimeout, refusal(t, resp, err).Reason)
			assert.Equal(t, 10*time.Second, time.Since(begin), "only the first waits")
		}
		assert.EqualValues(t, 4, lane(t, l).RepeatSheds)
		l.Close()
	})
}

// After a 429 nobody takes the freed slot before the back end wants to be asked again.
// Everybody waits, within their own bounds.
func TestTrap18_EveryoneAfterA429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 2)
		var mu sync.Mutex
		var at []time.Duration
		begin := time.Now()
		tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(begin))
			if len(at) > 1 {
				return hello(r)
			}
			resp := answer(r, http.StatusTooManyRequests, text("slow down"))
			resp.Header.Set("Retry-After", "20")
			return resp, nil
		}), l, clientwrap.Config{})
		resp, err := tr.RoundTrip(request(t, context.Background(), nil))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.InDelta(t, 20, float64(lane(t, l).PausedS), 0.01)

		var all sync.WaitGroup
		for _, class := range []gate.Class{gate.Bulk, gate.Interactive, gate.Default} {
			all.Go(func() {
				resp, err := tr.RoundTrip(request(t, gate.WithClass(context.Background(), class), nil))
				if assert.NoError(t, err) {
					assert.NoError(t, resp.Body.Close())
				}
			})
		}
		short, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = tr.RoundTrip(request(t, short, nil))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(begin))
		all.Wait()
		assert.Equal(t, []time.Duration{0, 20 * time.Second, 20 * time.Second, 20 * time.Second}, at)
		l.Close()
	})
}

// The bounds are those of the logical call: its attempts together wait no longer than
// one QueueTimeout, and a free slot is given even then.
func TestTrap20_BudgetPerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, func(c *inflight.Config) { c.QueueTimeout = 10 * time.Second })
		tr := clientwrap.NewTransport(&failsFirst{n: 1}, l, clientwrap.Config{})
		ctx, begin := inflight.WithCall(context.Background()), time.Now()
		give := hold(t, l)
		time.AfterFunc(6*time.Second, give)
		resp, err := tr.RoundTrip(request(t, ctx, nil)) // waits for 6 s
		require.NoError(t, err)
		require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		defer hold(t, l)()
		resp, err = tr.RoundTrip(request(t, ctx, nil)) // for 4 s more
		rej := refusal(t, resp, err)
		assert.Equal(t, 10*time.Second, time.Since(begin))
		assert.Equal(t, 10*time.Second, rej.Waited)
		assert.Contains(t, rej.Error(), "after 10.0s")
		l.Close()
	})
}
