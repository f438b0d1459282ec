package clientwrap_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The traps of this file: operations.

// Neither hosts nor models that somebody invents make lanes without end.
func TestTrap59_LaneGrowth(t *testing.T) {
	t.Run("hosts", func(t *testing.T) {
		l := slots(t, 1, func(c *inflight.Config) { c.MaxLanes = 3 })
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		for i := range 100 {
			resp, err := get(t, context.Background(), &http.Client{Transport: tr}, fmt.Sprintf("http://h%d.example.com/", i))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.Len(t, l.Snapshot().Lanes, 3)
	})
	t.Run("models", func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "a", "b")})
		for i := range 100 {
			resp, err := tr.RoundTrip(request(t, context.Background(), strings.NewReader(fmt.Sprintf(`{"model": "invented-%d"}`, i))))
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		assert.Equal(t, "http://api.example.com|other", lane(t, l).Lane)
	})
}

// No lane, error or label has anything of a URL that can be a secret.
func TestTrap60_SecretsInLanes(t *testing.T) {
	for name, pick := range map[string]func(*http.Request) string{
		"host": nil, "model": clientwrap.LaneByModel("", "m"),
		"configured": clientwrap.LaneByModel("https://secret:secret@API.example.com/v1?key=secret#secret", "m"),
	} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1, nobodyWaits)
			tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Lane: pick})
			for range 2 { // the second is refused
				req, err := http.NewRequest(http.MethodGet, "https://secret:secret@API.example.com:443/v1/secret?key=secret#secret", http.NoBody)
				require.NoError(t, err)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				if rej := clientwrap.Refused(resp, nil); rej != nil {
					assert.NotContains(t, rej.Error(), "secret")
					assert.NotContains(t, readAll(t, resp.Body), "secret")
					require.NoError(t, resp.Body.Close())
				}
			}
			key := lane(t, l).Lane
			assert.NotContains(t, key, "secret")
			assert.True(t, strings.HasPrefix(key, "https://api.example.com"), key)
			assert.EqualValues(t, 1, lane(t, l).Sheds)
		})
	}
}

// The figures are right after every step: there is no gauge that could be stale.
func TestTrap61_StaleGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		is := func(inflight, queued int) {
			t.Helper()
			synctest.Wait()
			assert.Equal(t, []int{inflight, queued}, []int{lane(t, l).Inflight, lane(t, l).Queued})
		}
		first, err := tr.RoundTrip(request(t, context.Background(), nil))
		require.NoError(t, err)
		is(1, 0)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, _ = tr.RoundTrip(request(t, ctx, nil)) }()
		is(1, 1)
		second := make(chan *http.Response, 1)
		go func() {
			resp, err := tr.RoundTrip(request(t, context.Background(), nil))
			assert.NoError(t, err)
			second <- resp
		}()
		is(1, 2)
		cancel()
		is(1, 1)
		require.NoError(t, first.Body.Close())
		is(1, 0)
		_ = readAll(t, (<-second).Body)
		is(0, 0)
		l.Close()
	})
}

// A health probe does not queue behind the work that it watches over.
func TestTrap62_ProbeBehindWork(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	seen := new(recorder)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{
		Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	})
	defer hold(t, l)()
	req := request(t, seen.in(context.Background()), nil)
	req.URL.Path = "/healthz"
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	require.Nil(t, clientwrap.Refused(resp, err))
	assert.Equal(t, "hello", readAll(t, resp.Body))
	assert.EqualValues(t, 1, lane(t, l).Granted, "the one that is held")
	assert.Empty(t, seen.observed(), "a probe is no measure of the back end")
	resp, err = tr.RoundTrip(request(t, context.Background(), nil))
	_ = refusal(t, resp, err)
}

// It can be seen why nobody moves: all slots taken, those left are kept for people, or
// the back end has asked for a pause.
func TestTrap63_SaturationWithoutContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 2, func(c *inflight.Config) { c.InteractiveReserve = 1 })
		var pause atomic.Bool
		n := &line{t: t, base: &failsFirst{takes: 3 * time.Minute}}
		n.tr = clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			resp, err := n.base.RoundTrip(r)
			if pause.Load() {
				resp.StatusCode = http.StatusServiceUnavailable
				resp.Header.Set("Retry-After", "60")
			}
			return resp, err
		}), l, clientwrap.Config{})
		bulk := gate.WithClass(context.Background(), gate.Bulk)
		n.join(bulk, "1")
		n.join(bulk, "2")
		time.Sleep(90 * time.Second)
		s := lane(t, l)
		assert.Equal(t, []int{2, 1, 1, 1}, []int{s.Limit, s.Reserve, s.Inflight, s.Queued}, "one is free, for people")
		assert.True(t, s.Saturated)
		assert.Equal(t, inflight.LocalQueue, s.Verdict)
		pause.Store(true)
		time.Sleep(2 * time.Minute) // the first call is answered, and the lane is paused
		s = lane(t, l)
		assert.Equal(t, []int{0, 1}, []int{s.Inflight, s.Queued})
		assert.Positive(t, float64(s.PausedS))
		pause.Store(false)
		n.all.Wait()
		l.Close()
	})
}
