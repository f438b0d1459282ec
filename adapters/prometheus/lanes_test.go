package promgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// use takes a slot of a lane and gives it back.
func use(t testing.TB, l *inflight.Limiter, lane string) {
	t.Helper()
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: lane})
	require.NoError(t, err)
	lease.Release()
}

// lanesOf are the lanes that have series of a metric.
func lanesOf(s series, metric string) (lanes []string) {
	for name := range s.of(metric) {
		_, lane, _ := strings.Cut(name, "{lane=")
		lanes = append(lanes, strings.TrimSuffix(lane, "}"))
	}
	slices.Sort(lanes)
	return lanes
}

func granted(lane string) string { return "headgate_outbound_granted_total{lane=" + lane + "}" }

// The first 50 lanes have their series, later ones are "other", and an evicted lane's are
// gone. Its place is for a lane that is made later.
func TestFirstLanesKeepTheirSeries(t *testing.T) {
	hg := limiter(t, func(c *inflight.Config) { c.MaxLanes = 60 })
	l := hg.Outbound
	r := registered(t, hg)
	assert.Empty(t, lanesOf(scrape(t, r), "headgate_outbound_inflight"))
	var want []string
	var held []gate.Lease
	for i := range 60 {
		lane := fmt.Sprintf("lane %02d", i)
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: lane, Class: gate.Bulk})
		require.NoError(t, err)
		held = append(held, lease)
		if i < 50 {
			want = append(want, lane)
		}
	}
	s := scrape(t, r)
	assert.Equal(t, append(slices.Clone(want), "other"), lanesOf(s, "headgate_outbound_inflight"))
	assert.Equal(t, 10.0, s.value(t, "headgate_outbound_inflight{lane=other}"))
	assert.Equal(t, 40.0, s.value(t, "headgate_outbound_limit{lane=other}"))
	assert.Equal(t, 10.0, s.value(t, granted("other")))
	assert.Equal(t, 1.0, s.value(t, "headgate_outbound_verdict{lane=other,verdict=busy}"))
	assert.Equal(t, 0.0, s.value(t, "headgate_outbound_verdict{lane=other,verdict=idle}"))
	assert.Equal(t, 10.0, s.value(t, "headgate_outbound_queue_wait_seconds_count{lane=other,priority=bulk}"))

	held[7].Release() // the only idle lane makes way
	use(t, l, "late")
	s = scrape(t, r)
	want = append(slices.Delete(want, 7, 8), "late", "other")
	slices.Sort(want)
	assert.Equal(t, want, lanesOf(s, "headgate_outbound_inflight"))
	assert.Equal(t, want, lanesOf(s, "headgate_outbound_hold_seconds_count"))
	assert.Equal(t, 10.0, s.value(t, granted("other")), "the evicted lane was shown with all that it had")

	held[3].Release() // an old lane comes back, and is new
	use(t, l, "lane 07")
	use(t, l, "lane 07")
	s = scrape(t, r)
	assert.Equal(t, 2.0, s.value(t, granted("lane 07")))
	assert.NotContains(t, s, granted("late"), "it was idle too")

	for _, lease := range held { // twice is once
		lease.Release()
	}
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// The lane that the limiter itself calls "other", for keys that have no room, is in "other".
func TestOverflowLaneIsOther(t *testing.T) {
	hg := limiter(t, func(c *inflight.Config) { c.MaxLanes = 1 })
	r := registered(t, hg)
	lease, err := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: "busy"})
	require.NoError(t, err)
	for i := range 20 {
		use(t, hg.Outbound, fmt.Sprint(i))
	}
	use(t, hg.Outbound, "other")
	s := scrape(t, r)
	assert.Equal(t, []string{"busy", "other"}, lanesOf(s, "headgate_outbound_inflight"))
	assert.Equal(t, 21.0, s.value(t, granted("other")))

	use(t, hg.Outbound, "busy") // after its last scrape
	lease.Release()
	use(t, hg.Outbound, "new")
	s = scrape(t, r)
	assert.Equal(t, []string{"new", "other"}, lanesOf(s, "headgate_outbound_inflight"))
	assert.Equal(t, 22.0, s.value(t, granted("other")))
	assert.Equal(t, 1.0, s.value(t, granted("new")))
}

// Keys that are no text or no good text are lanes like others, and no scrape fails.
func TestOddLanes(t *testing.T) {
	hg := limiter(t, nil)
	r := registered(t, hg)
	for _, lane := range []string{"\xff\xfe", "a\"b\\c\nd", "", strings.Repeat("x", 10_000), "https://user:secret@host/v1|m", "\x00", "日本"} {
		use(t, hg.Outbound, lane)
	}
	s := scrape(t, r)
	lanes := lanesOf(s, "headgate_outbound_inflight")
	assert.Len(t, lanes, 7)
	assert.Contains(t, lanes, "\uFFFD")
	assert.Contains(t, lanes, "default")
	assert.Contains(t, lanes, "https://host/v1|m")
	for name := range s {
		assert.NotContains(t, name, "secret")
		assert.Less(t, len(name), 700)
	}
}

// rises are the names of series that must not fall.
func rises(name string) bool {
	base, _, _ := strings.Cut(name, "{")
	for _, end := range []string{"_total", "_count", "_sum", "_bucket"} {
		if strings.HasSuffix(base, end) {
			return true
		}
	}
	return false
}

// Whatever lanes come, go and come back, "other" never falls; a lane's series fall only
// when the lane is another one; and at any time all series together, those that are gone
// as they were last, are all that was ever granted.
func TestOtherNeverFalls(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 9))
			hg := limiter(t, func(c *inflight.Config) {
				c.MaxInflight, c.MaxLanes, c.MaxQueue, c.QueueTimeout = 1, 70, 2, time.Second
			})
			defer hg.Outbound.Close()
			r := registered(t, hg)
			last, gone, all := series{}, 0.0, 0.0
			made := map[string]int64{} // the numbers of lanes that were last shown
			for range 60 {
				for range rnd.IntN(80) {
					lane := fmt.Sprint("lane ", rnd.IntN(90))
					lease, err := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: lane})
					require.NoError(t, err)
					if all++; rnd.IntN(10) == 0 {
						waits := make(chan struct{})
						go func() {
							defer close(waits)
							_, _ = hg.Outbound.Acquire(context.Background(), gate.Request{Lane: lane, Class: gate.Bulk, Retry: true})
						}()
						time.Sleep(2 * time.Second)
						<-waits
					}
					lease.Release()
				}
				s := scrape(t, r)
				now := map[string]int64{}
				for _, l := range hg.Outbound.Snapshot().Lanes {
					if _, ok := s[granted(l.Lane)]; ok {
						now[l.Lane] = l.Number
					}
				}
				for lane, number := range made {
					if now[lane] != number {
						gone += last[granted(lane)]
					}
				}
				for name, v := range last {
					_, lane, _ := strings.Cut(name, "{lane=")
					lane, _, _ = strings.Cut(strings.TrimSuffix(lane, "}"), ",")
					if rises(name) && (lane == "other" || made[lane] == now[lane]) && s[name] < v {
						t.Fatalf("seed %d: %s was %v and is %v", seed, name, v, s[name])
					}
				}
				require.Equal(t, all, gone+s.of("headgate_outbound_granted_total").sum(), "seed %d", seed)
				last, made = s, now
			}
			require.Len(t, lanesOf(last, "headgate_outbound_inflight"), 51)
			assert.Positive(t, last.value(t, "headgate_outbound_queue_timeouts_total{lane=other}"))
			assert.Positive(t, last.value(t, "headgate_outbound_retries_total{lane=other}"))
		})
	}
}

// Scrapes of several registries at once, while lanes come and go: none fails, and what
// rises rises.
func TestScrapesWhileLanesComeAndGo(t *testing.T) {
	c := settings()
	c.Inflight.MaxInflight, c.Inflight.MaxLanes, c.Inflight.QueueTimeout = 2, 60, 0
	c.Lanes.Mode, c.Lanes.VirtualLanes = gate.Enforce, true
	hg := open(t, c)
	shared, err := promgate.New(hg)
	require.NoError(t, err)
	a, b := prometheus.NewRegistry(), prometheus.NewRegistry()
	_, err = shared.Register(a)
	require.NoError(t, err)
	_, err = shared.Register(b)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 4))
			for ctx.Err() == nil {
				r := gate.Request{Lane: fmt.Sprint(rnd.IntN(200)), Flow: fmt.Sprint(rnd.IntN(2000)), Bytes: 100, Class: gate.Class(rnd.IntN(4))}
				for _, g := range []gate.Gate{hg.Bytes, hg.Tenants, hg.Outbound} {
					if lease, err := g.Acquire(ctx, r); err == nil {
						lease.Release()
					}
				}
			}
		})
	}
	var scrapes sync.WaitGroup
	for _, r := range []*prometheus.Registry{a, b, registered(t, hg), a} {
		scrapes.Go(func() {
			last := series{}
			for range 10 {
				s := scrape(t, r)
				for name, v := range last {
					if rises(name) && (!strings.Contains(name, "lane=") || strings.Contains(name, "lane=other")) && s[name] < v {
						t.Errorf("%s was %v and is %v", name, v, s[name])
						return
					}
				}
				last = s
			}
		})
	}
	scrapes.Wait()
	cancel()
	wg.Wait()
	s := scrape(t, a)
	assert.Zero(t, s.of("headgate_scrape_failures_total").sum())
	assert.Zero(t, s.of("headgate_outbound_inflight").sum()+s.value(t, "headgate_lanes_inflight")+s.value(t, "headgate_admission_inflight_bytes"))
}
