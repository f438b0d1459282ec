package promgate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// full are gates with room for one request each, of Flow "a", Lane llm and this many bytes.
func full(t testing.TB) (hg *headgate.Headgate, most int64) {
	t.Helper()
	a, l, o := admission.DefaultConfig(), lanes.DefaultConfig(), inflight.DefaultConfig()
	a.MaxInflightBytes = 8 << 20
	l.Mode, l.VirtualLanes, l.Algorithm, l.MinLimit, l.InitialLimit = gate.Enforce, true, lanes.Fixed, 8, 8
	o.MaxInflight, o.InteractiveReserve = 1, 0
	hg = new(headgate.Headgate)
	var err error
	hg.Bytes, err = admission.New(a)
	require.NoError(t, err)
	hg.Tenants, err = lanes.New(l)
	require.NoError(t, err)
	hg.Outbound, err = inflight.New(o)
	require.NoError(t, err)
	return hg, int64(a.MaxInflightBytes)
}

// I10: a scrape whose reader stands still holds up nobody: neither those whom the gates
// admit, at once or from the queue, nor those whom they refuse, nor the next scrape.
func TestI10StuckScrapeHoldsNothing(t *testing.T) {
	hang := time.AfterFunc(time.Minute, func() { panic("somebody waits for a lock of the scrape") })
	defer hang.Stop()
	synctest.Test(t, func(t *testing.T) {
		hg, most := full(t)
		defer hg.Outbound.Close()
		defer hg.Tenants.Close()
		defer hg.Bytes.Close()
		c, err := promgate.New(hg)
		require.NoError(t, err)
		r := prometheus.NewRegistry()
		_, err = c.Register(r)
		require.NoError(t, err)
		ctx := context.Background()
		use(t, hg.Outbound, llm) // there is a lane to tell of
		total := 0
		for range scrape(t, r) {
			total++
		}

		gates := []gate.Gate{hg.Bytes, hg.Tenants, hg.Outbound}
		q := gate.Request{Lane: llm, Flow: "a", Bytes: most, Cost: 8}
		// It stops before each metric once, so that no place where it stops is left out.
		for stop := range total {
			ch := make(chan prometheus.Metric)
			ended := make(chan struct{})
			go func() { defer close(ended); c.Collect(ch) }()
			read := 0
			for range stop {
				synctest.Wait()
				select {
				case <-ch:
					read++
				default:
				}
			}
			synctest.Wait()
			crowd := newCrowd(t)
			for i, g := range gates {
				holder, waiter := fmt.Sprint("holder ", i), fmt.Sprint("waiter ", i)
				crowd.ask(ctx, g, holder, q)
				crowd.ask(ctx, g, waiter, q)
				late, cancel := context.WithTimeout(ctx, time.Second)
				crowd.ask(late, g, "late", q)
				time.Sleep(time.Second)
				synctest.Wait()
				crowd.refused("late", gate.Deadline)
				cancel()
				crowd.release(holder)
				crowd.release(waiter)
			}
			if stop%50 == 0 {
				assert.NotEmpty(t, scrape(t, r), "another scrape")
			}
			for range rest(ch, ended) {
				read++
			}
			require.Positive(t, read)
		}
	})
}

// rest is what comes of a channel until its writer has ended.
func rest(ch <-chan prometheus.Metric, ended <-chan struct{}) func(func(prometheus.Metric) bool) {
	return func(yield func(prometheus.Metric) bool) {
		for {
			select {
			case m := <-ch:
				if !yield(m) {
					return
				}
			case <-ended:
				return
			}
		}
	}
}
