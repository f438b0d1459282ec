package sdktest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A refusal is tried once, waits once, and can be read from the SDK's error.
func TestTrap17_RefusedOnce(t *testing.T) {
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1, 10*time.Second)
				defer hold(t, l, base)()
				rt := wrap(new(backend), l, base, clientwrap.Config{Format: sdk.format})
				begin := time.Now()
				err := sdk.ask(context.Background(), settings{base: base, rt: rt})
				require.Error(t, err)
				assert.EqualValues(t, 1, rt.tries.Load())
				assert.Equal(t, 10*time.Second, time.Since(begin))

				resp := sdk.response(t, err)
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				rej := clientwrap.Refused(resp, err)
				require.NotNil(t, rej)
				assert.Equal(t, gate.QueueTimeout, rej.Reason)
				assert.Equal(t, base+"|"+model, rej.Lane)
				// The body is in the shape that the SDK reads.
				if e := (*openai.Error)(nil); errors.As(err, &e) {
					assert.Equal(t, "queue_timeout", e.Code)
					assert.Equal(t, rej.Error(), e.Message)
				} else {
					assert.ErrorContains(t, err, "refused locally by inflight")
				}
				l.Close()
			})
		})
	}
}

// A stream that is refused says so at its first event.
func TestTrap17_StreamRefusedOnce(t *testing.T) {
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1, 0)
				defer hold(t, l, base)()
				rt := wrap(new(backend), l, base, clientwrap.Config{Format: sdk.format})
				s := sdk.open(context.Background(), settings{base: base, rt: rt})
				assert.False(t, s.Next())
				assert.NotNil(t, clientwrap.Refused(sdk.response(t, s.Err()), nil))
				assert.EqualValues(t, 1, rt.tries.Load())
				l.Close()
			})
		})
	}
}

// Who wants errors gets retries. Under a ticket they do not wait again.
func TestTrap17_AsErrorIsRetried(t *testing.T) {
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1, 10*time.Second)
				defer hold(t, l, base)()
				rt := wrap(new(backend), l, base, clientwrap.Config{AsError: true})
				begin := time.Now()
				err := sdk.ask(inflight.WithCall(context.Background()), settings{base: base, rt: rt})
				assert.NotNil(t, clientwrap.Refused(nil, err))
				assert.EqualValues(t, 3, rt.tries.Load())
				assert.EqualValues(t, 2, lane(t, l).RepeatSheds)
				assert.Less(t, time.Since(begin), 15*time.Second, "one wait and the SDK's own backoff")
				l.Close()
			})
		})
	}
}

// Attempts that the back end has failed are retried, each with a slot of its own and
// none in between, and counted.
func TestTrap14_RetriesOfTheSDK(t *testing.T) {
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1, 0)
				rt := wrap(&backend{fails: 2, takes: time.Second}, l, base, clientwrap.Config{})
				done := make(chan error, 1)
				go func() { done <- sdk.ask(context.Background(), settings{base: base, rt: rt}) }()
				time.Sleep(1100 * time.Millisecond) // the first backoff is 375 ms at least
				synctest.Wait()
				assert.Equal(t, 0, lane(t, l).Inflight)
				require.NoError(t, <-done)
				assert.EqualValues(t, 3, rt.tries.Load())
				assert.EqualValues(t, 2, lane(t, l).Retries)
				assert.Equal(t, 0, lane(t, l).Inflight)
				l.Close()
			})
		})
	}
}

// A queue that is longer than the SDK's timeout: the call fails if it queues inside the
// client, and succeeds if Do waits above it.
func TestTrap21_QueueLongerThanTheTimeout(t *testing.T) {
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1, 5*time.Minute)
				rt := wrap(&backend{takes: 500 * time.Millisecond}, l, base, clientwrap.Config{})
				c := settings{base: base, rt: rt, timeout: time.Second}

				time.AfterFunc(time.Minute, hold(t, l, base))
				require.ErrorIs(t, sdk.ask(context.Background(), c), context.DeadlineExceeded)
				time.Sleep(time.Hour)
				assert.Equal(t, 0, lane(t, l).Inflight)
				assert.Equal(t, 0, lane(t, l).Queued)

				rt.tries.Store(0)
				time.AfterFunc(time.Minute, hold(t, l, base))
				begin := time.Now()
				err := l.Do(context.Background(), key(base), func(ctx context.Context) error { return sdk.ask(ctx, c) })
				require.NoError(t, err)
				assert.EqualValues(t, 1, rt.tries.Load())
				assert.Equal(t, time.Minute+500*time.Millisecond, time.Since(begin))
				assert.Equal(t, 0, lane(t, l).Inflight)
				l.Close()
			})
		})
	}
}

// retryable returns a go-retryablehttp client that does not sleep.
func retryable(rt http.RoundTripper, check retryablehttp.CheckRetry) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: rt}
	c.CheckRetry = check
	c.Backoff = func(time.Duration, time.Duration, int, *http.Response) time.Duration { return time.Millisecond }
	return c
}

// go-retryablehttp knows no x-should-retry: it tries 5 times. Under a ticket 4 of them
// are refused at once; with CheckRetry it tries once.
func TestTrap17_RetryableHTTP(t *testing.T) {
	for name, test := range map[string]struct {
		check  retryablehttp.CheckRetry
		ticket bool
		tries  int
		repeat int64
		waits  time.Duration
	}{
		"default":               {retryablehttp.DefaultRetryPolicy, false, 5, 0, 50 * time.Second},
		"default with a ticket": {retryablehttp.DefaultRetryPolicy, true, 5, 4, 10 * time.Second},
		"ours":                  {clientwrap.CheckRetry(retryablehttp.DefaultRetryPolicy), false, 1, 0, 10 * time.Second},
		"ours with a ticket":    {clientwrap.CheckRetry(retryablehttp.ErrorPropagatedRetryPolicy), true, 1, 0, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1, 10*time.Second)
				defer hold(t, l, base)()
				rt := wrap(new(backend), l, base, clientwrap.Config{})
				ctx := context.Background()
				if test.ticket {
					ctx = inflight.WithCall(ctx)
				}
				r, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", []byte(`{"model":"small"}`))
				require.NoError(t, err)
				begin := time.Now()
				resp, err := retryable(rt, test.check).Do(r)
				assert.EqualValues(t, test.tries, rt.tries.Load())
				assert.Equal(t, test.repeat, lane(t, l).RepeatSheds)
				assert.Equal(t, test.waits, time.Since(begin).Truncate(time.Second))
				if test.tries == 1 {
					require.NoError(t, err)
					assert.Equal(t, gate.QueueTimeout, clientwrap.Refused(resp, err).Reason)
					require.NoError(t, resp.Body.Close())
				} else {
					require.ErrorContains(t, err, "giving up after 5 attempt(s)")
				}
				l.Close()
			})
		})
	}
}

// What the back end has failed is retried as ever.
func TestRetryableHTTPStillRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, 0)
		rt := wrap(&backend{fails: 2}, l, base, clientwrap.Config{})
		r, err := retryablehttp.NewRequest(http.MethodPost, base+"/v1/chat/completions", []byte(`{"model":"small"}`))
		require.NoError(t, err)
		resp, err := retryable(rt, clientwrap.CheckRetry(retryablehttp.DefaultRetryPolicy)).Do(r)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, 3, rt.tries.Load())
		assert.Equal(t, 0, lane(t, l).Inflight)
		l.Close()
	})
}
