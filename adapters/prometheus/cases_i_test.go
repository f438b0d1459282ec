package promgate_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/core/pressure"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// I1, I2: methods, routes and paths make no series.
func TestI1I2WireTextMakesNoSeries(t *testing.T) {
	requests := 100_000
	if testing.Short() || raceEnabled {
		requests = 10_000
	}
	all := open(t, settings())
	hg := &headgate.Headgate{Bytes: all.Bytes, Tenants: all.Tenants}
	r := registered(t, hg)
	before := scrape(t, r)
	for i := range requests {
		for _, g := range []gate.Gate{hg.Bytes, hg.Tenants} {
			lease, err := g.Acquire(context.Background(), gate.Request{
				Method: fmt.Sprintf("M%04d", i%10_000), Route: fmt.Sprint("/not/there/", i), ContentType: fmt.Sprint("x/", i), Bytes: 10,
			})
			require.NoError(t, err)
			lease.Release()
		}
	}
	after := scrape(t, r)
	for name := range after {
		assert.NotContains(t, name, "M00")
		assert.NotContains(t, name, "/not/there")
	}
	for name := range after {
		if _, ok := before[name]; !ok { // not known at first
			assert.Regexp(t, `typical_hold_seconds|latency_seconds`, name)
		}
	}
}

func heap() int64 {
	for range 3 { // what is in a sync.Pool lives for two collections
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// I3: a million tenants that are refused make no series and next to no memory.
func TestI3TenantsAreNoLabels(t *testing.T) {
	tenants := 1_000_000
	if testing.Short() || raceEnabled {
		tenants = 50_000
	}
	c := settings()
	c.Lanes.Mode, c.Lanes.VirtualLanes, c.Lanes.MaxWait, c.Lanes.Algorithm = gate.Enforce, true, 0, lanes.Fixed
	hg := &headgate.Headgate{Tenants: open(t, c).Tenants}
	lease, err := hg.Tenants.Acquire(context.Background(), gate.Request{Flow: "holder", Cost: int64(c.Lanes.InitialLimit)})
	require.NoError(t, err)
	defer lease.Release()
	r := registered(t, hg)
	series, before := len(scrape(t, r)), heap()
	for i := range tenants {
		if _, err := hg.Tenants.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint("tenant-", i), Cost: 6}); err == nil {
			t.Fatal("admitted")
		}
		if i%100_000 == 0 {
			require.Equal(t, series, len(scrape(t, r)))
		}
	}
	s := scrape(t, r)
	grown := heap() - before
	t.Logf("%d tenants refused: %d series, %d KiB more", tenants, len(s), grown>>10)
	assert.Equal(t, series, len(s))
	assert.Equal(t, float64(tenants), s.value(t, "headgate_lanes_sheds_total{reason=queue_timeout}"))
	assert.Less(t, grown, int64(20<<20))
	for name := range s {
		assert.NotContains(t, name, "tenant-")
	}
}

// The same of lanes that somebody invents: those that are not the first share a series.
func TestI3LanesAreBounded(t *testing.T) {
	keys := 30_000
	if testing.Short() || raceEnabled {
		keys = 2000
	}
	hg := limiter(t, nil)
	r := registered(t, hg)
	for i := range 1000 {
		lease, err := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("first ", i)})
		require.NoError(t, err)
		lease.Release()
	}
	series, before := len(scrape(t, r)), heap()
	for i := range keys {
		lease, err := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("lane ", i)})
		require.NoError(t, err)
		lease.Release()
		if i%10_000 == 0 {
			assert.LessOrEqual(t, len(scrape(t, r)), series)
		}
	}
	s := scrape(t, r)
	grown := heap() - before
	t.Logf("%d lanes: %d series, %d KiB more", keys, len(s), grown>>10)
	assert.Len(t, s.of("headgate_outbound_inflight"), 51)
	assert.LessOrEqual(t, len(s), series)
	assert.Less(t, grown, int64(20<<20))
}

// I5: the gauges are what is so, whatever ends a wait or a call.
func TestI5GaugesAreWhatIsSo(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 5))
			hg := limiter(t, func(c *inflight.Config) { c.MaxInflight, c.InteractiveReserve, c.QueueTimeout = 3, 1, 20*time.Second })
			defer hg.Outbound.Close()
			r := registered(t, hg)
			classes := []gate.Class{gate.Interactive, gate.Default, gate.Bulk}
			var mu sync.Mutex
			var leases []gate.Lease
			var cancels []context.CancelFunc
			waiting := map[string]int{}
			asked := func(class gate.Class, f func(context.Context) error) {
				ctx, cancel := context.WithCancel(gate.WithClass(context.Background(), class))
				cancels = append(cancels, cancel)
				mu.Lock()
				waiting[class.String()]++
				mu.Unlock()
				go func() {
					once := sync.OnceFunc(func() { mu.Lock(); waiting[class.String()]--; mu.Unlock() })
					defer func() { _ = recover(); once() }()
					_ = f(ctx)
				}()
			}
			timeouts := 0.0
			for step := range 1000 {
				switch rnd.IntN(6) {
				case 0, 1:
					asked(classes[rnd.IntN(3)], func(ctx context.Context) error {
						lease, err := hg.Outbound.Acquire(ctx, gate.Request{Lane: llm})
						if err == nil {
							mu.Lock()
							leases = append(leases, lease)
							mu.Unlock()
						}
						return err
					})
				case 2:
					asked(classes[rnd.IntN(3)], func(ctx context.Context) error {
						return hg.Outbound.Do(ctx, llm, func(context.Context) error { panic("service") })
					})
				case 3:
					if len(cancels) > 0 {
						cancels[rnd.IntN(len(cancels))]()
					}
				case 4:
					time.Sleep(time.Duration(rnd.IntN(4000)) * time.Millisecond)
				case 5:
					mu.Lock()
					for range min(len(leases), 1+rnd.IntN(2)) {
						leases[0].Release()
						leases[0].Release() // twice is once
						leases = leases[1:]
					}
					mu.Unlock()
				}
				synctest.Wait()
				s := scrape(t, r)
				mu.Lock() // for whoever writes next
				waiting, held := maps.Clone(waiting), len(leases)
				mu.Unlock()
				for class, n := range waiting {
					require.Equal(t, float64(n), s.value(t, "headgate_outbound_queue_depth{lane="+llm+",priority="+class+"}"), "seed %d, step %d", seed, step)
				}
				if len(waiting) > 0 {
					require.Equal(t, float64(held), s.value(t, "headgate_outbound_inflight{lane="+llm+"}"), "seed %d, step %d", seed, step)
					timeouts = s.value(t, "headgate_outbound_queue_timeouts_total{lane="+llm+"}")
				}
			}
			assert.Positive(t, timeouts)
			for _, cancel := range cancels {
				cancel()
			}
			synctest.Wait()
			for _, lease := range leases {
				lease.Release()
			}
			synctest.Wait()
			assert.Zero(t, scrape(t, r).of("headgate_outbound_queue_depth").sum())
		})
	}
}

// container is a cgroup of 8 GiB whose use can change.
type container struct{ used atomic.Int64 }

func (c *container) Open(name string) (fs.File, error) {
	return fstest.MapFS{
		"proc/meminfo":                     {Data: []byte("MemTotal:  67108864 kB\n")},
		"proc/self/cgroup":                 {Data: []byte("0::/app\n")},
		"sys/fs/cgroup/app/memory.max":     {Data: fmt.Appendln(nil, int64(8<<30))},
		"sys/fs/cgroup/app/memory.current": {Data: fmt.Appendln(nil, c.used.Load())},
		"sys/fs/cgroup/app/memory.stat":    {Data: []byte("inactive_file 0\nactive_file 0\n")},
	}.Open(name)
}

// silent is a body that never comes.
type silent struct{ deadline time.Time }

func (s *silent) setReadDeadline(t time.Time) error { s.deadline = t; return nil }
func (s *silent) Close() error                      { return nil }
func (s *silent) Read([]byte) (int, error) {
	time.Sleep(time.Until(s.deadline))
	return 0, os.ErrDeadlineExceeded
}

// onceEach fails unless each of the reasons that a gate's source has was counted once.
func onceEach(t *testing.T, s series, name, file string) {
	t.Helper()
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	list := regexp.MustCompile(`(?s)\nvar reasons = .*?\n}`).Find(src)
	reasons := regexp.MustCompile(`gate\.[A-Z]\w+,`).FindAllString(string(list), -1)
	require.Greater(t, len(reasons), 3, file)
	got := s.of("headgate_" + name + "_sheds_total")
	assert.Len(t, got, len(reasons)-1, "all of %v but the one for who has left", reasons)
	for name, n := range got {
		assert.Equal(t, 1.0, n, name)
	}
	for name, n := range s.of("headgate_" + name + "_canceled_total") {
		assert.Equal(t, 1.0, n, name)
	}
}

// I7: every reason that byte admission has, forced once. From the start they are 0.
func TestI7Admission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var box container
		box.used.Store(1 << 30)
		p := pressure.DefaultConfig()
		p.Collect, p.Root = false, &box
		m, err := pressure.New(p)
		require.NoError(t, err)
		defer m.Close()
		c := admission.DefaultConfig()
		c.Pressure, c.MaxInflightBytes, c.HardMaxBodyBytes, c.MaxWaiters = m, 8<<20, 20<<20, 1
		b, err := admission.New(c)
		require.NoError(t, err)
		r := registered(t, &headgate.Headgate{Bytes: b, Memory: m})
		assert.Len(t, scrape(t, r).of("headgate_admission_sheds_total"), 9)
		assert.Zero(t, scrape(t, r).of("headgate_admission_sheds_total").sum())

		crowd, ctx := newCrowd(t), context.Background()
		crowd.ask(ctx, b, "holder", gate.Request{Bytes: 8 << 20})
		crowd.ask(ctx, b, "large", gate.Request{Bytes: 21 << 20})
		crowd.refused("large", gate.PayloadTooLarge)
		crowd.ask(ctx, b, "never", gate.Request{Bytes: 10 << 20})
		crowd.refused("never", gate.BodyExceedsBudget)
		crowd.ask(ctx, b, "heavy", gate.Request{Bytes: 1 << 20, Flow: "a"})
		crowd.ask(ctx, b, "busy", gate.Request{Bytes: 1 << 20, Flow: "a"})
		crowd.refused("busy", gate.AdmissionBusy)
		crowd.ask(ctx, b, "light", gate.Request{Bytes: 100, Flow: "b"})
		crowd.refused("heavy", gate.Displaced)
		s := scrape(t, r)
		assert.Equal(t, 1.0, s.value(t, "headgate_admission_queue_depth{weight=light}"))
		assert.Equal(t, 100.0, s.value(t, "headgate_admission_waiting_bytes"))
		time.Sleep(20 * time.Second)
		crowd.refused("light", gate.QueueTimeout)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		crowd.ask(short, b, "late", gate.Request{Bytes: 100})
		time.Sleep(time.Second)
		synctest.Wait()
		crowd.refused("late", gate.Deadline)
		leaves, leave := context.WithCancel(ctx)
		crowd.ask(leaves, b, "left", gate.Request{Bytes: 100})
		leave()
		synctest.Wait()
		crowd.refused("left", gate.Canceled)
		crowd.release("holder")

		crowd.ask(ctx, b, "slow", gate.Request{Bytes: 4096})
		slow := new(silent)
		_, err = crowd.leases["slow"].Body(slow, slow.setReadDeadline).Read(make([]byte, 10))
		require.ErrorIs(t, err, gate.SlowBody)
		crowd.release("slow")

		box.used.Store(8 << 30)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		crowd.ask(ctx, b, "pressed", gate.Request{Bytes: 1 << 20})
		crowd.refused("pressed", gate.ResourcePressure)
		s = scrape(t, r)
		assert.Equal(t, 2.0, s.value(t, "headgate_pressure_severity"))
		assert.Equal(t, 1.0, s.value(t, "headgate_pressure_signal{signal=working_set}"))
		b.Close()
		crowd.ask(ctx, b, "closed", gate.Request{Bytes: 10})
		crowd.refused("closed", gate.ShuttingDown)

		s = scrape(t, r)
		onceEach(t, s, "admission", "../../core/admission/stats.go")
		refused := len(crowd.errs) - 1 /* has left */ + 1 /* was slow after it was admitted */
		assert.Equal(t, float64(refused), s.of("headgate_admission_sheds_total").sum())
	})
}

// I7: every reason of the tenants' gate.
func TestI7Lanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanes.DefaultConfig()
		c.Mode, c.VirtualLanes, c.Algorithm = gate.Enforce, true, lanes.Fixed
		c.MinLimit, c.InitialLimit, c.MaxQueueCount = 8, 10, 1
		l, err := lanes.New(c)
		require.NoError(t, err)
		defer l.Close()
		r := registered(t, &headgate.Headgate{Tenants: l})
		assert.Zero(t, scrape(t, r).of("headgate_lanes_sheds_total").sum())

		crowd, ctx := newCrowd(t), context.Background()
		crowd.ask(ctx, l, "holder", gate.Request{Flow: "a", Cost: 10})
		crowd.ask(ctx, l, "dear", gate.Request{Flow: "a", Cost: 1001})
		crowd.refused("dear", gate.CostExceedsLimit)
		crowd.ask(ctx, l, "bulk", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		crowd.ask(ctx, l, "lane full", gate.Request{Flow: "a", Class: gate.Bulk, Cost: 1})
		crowd.refused("lane full", gate.TenantQueueFull)
		crowd.ask(ctx, l, "chat", gate.Request{Flow: "a", Class: gate.Interactive, Cost: 1})
		crowd.refused("bulk", gate.Displaced)
		leaves, leave := context.WithCancel(ctx)
		crowd.ask(leaves, l, "left", gate.Request{Flow: "b", Cost: 1})
		leave()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		crowd.ask(short, l, "late", gate.Request{Flow: "c", Cost: 1})
		time.Sleep(time.Minute)
		synctest.Wait()
		crowd.refused("left", gate.Canceled)
		crowd.refused("late", gate.Deadline)
		crowd.refused("chat", gate.QueueTimeout)
		require.ErrorIs(t, l.NoTarget(ctx, 6), gate.NoTarget)
		for i := range 8 {
			crowd.ask(ctx, l, fmt.Sprint(i), gate.Request{Flow: fmt.Sprint(i), Cost: 1})
		}
		assert.Equal(t, 8.0, scrape(t, r).value(t, "headgate_lanes_queue_depth"))
		crowd.ask(ctx, l, "full", gate.Request{Flow: "x", Cost: 1})
		crowd.refused("full", gate.QueueFull)
		crowd.release("holder")
		crowd.releaseAll()
		l.Close()
		crowd.ask(ctx, l, "closed", gate.Request{Flow: "x", Cost: 1})
		crowd.refused("closed", gate.ShuttingDown)
		onceEach(t, scrape(t, r), "lanes", "../../core/lanes/refusal.go")
	})
}

// I7 and I9: every reason of outbound calls; a refusal that is repeated is counted apart;
// and what ends in service is none of them.
func TestI7Outbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hg := limiter(t, func(c *inflight.Config) { c.MaxInflight, c.MaxQueue, c.QueueTimeout = 1, 1, 30*time.Second })
		l := hg.Outbound
		defer l.Close()
		r := registered(t, hg)
		assert.Len(t, scrape(t, r).of("headgate_outbound_sheds_total"), 5)
		assert.Zero(t, scrape(t, r).of("headgate_outbound_sheds_total").sum())

		crowd, ctx := newCrowd(t), context.Background()
		req := func(c gate.Class) gate.Request { return gate.Request{Lane: llm, Class: c} }
		crowd.ask(ctx, l, "holder", req(gate.Bulk))
		crowd.ask(ctx, l, "bulk", req(gate.Bulk))
		call := inflight.WithCall(ctx)
		crowd.ask(call, l, "full", req(gate.Bulk))
		crowd.refused("full", gate.QueueFull)
		crowd.ask(call, l, "again", req(gate.Bulk))
		crowd.refused("again", gate.QueueFull)
		crowd.ask(ctx, l, "chat", req(gate.Interactive))
		crowd.refused("bulk", gate.Displaced)
		time.Sleep(time.Minute)
		synctest.Wait()
		crowd.refused("chat", gate.QueueTimeout)
		leaves, leave := context.WithCancel(ctx)
		crowd.ask(leaves, l, "left", req(gate.Bulk))
		leave()
		synctest.Wait()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		crowd.ask(short, l, "late", req(gate.Bulk))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		crowd.refused("left", gate.Canceled)
		crowd.refused("late", gate.Deadline)
		crowd.release("holder")
		service, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := l.Do(service, llm, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, gate.Deadline)
		l.Close()
		crowd.ask(ctx, l, "closed", req(gate.Bulk))
		crowd.refused("closed", gate.ShuttingDown)

		s := scrape(t, r)
		onceEach(t, s, "outbound", "../../core/inflight/refusal.go")
		assert.Equal(t, 1.0, s.value(t, "headgate_outbound_repeat_sheds_total{lane="+llm+"}"))
		assert.Equal(t, 1.0, s.value(t, "headgate_outbound_queue_timeouts_total{lane="+llm+"}"))
		assert.Equal(t, 1.0, s.value(t, "headgate_outbound_retries_total{lane="+llm+"}"))
		assert.Equal(t, float64(len(crowd.errs)), s.of("headgate_outbound_sheds_total").sum()+2, "one is repeated, one has left")
	})
}

// I9: a call that waits for 2 s and is served for 1 s is in two histograms.
func TestI9WaitIsNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hg := limiter(t, func(c *inflight.Config) { c.MaxInflight = 1 })
		defer hg.Outbound.Close()
		r, crowd := registered(t, hg), newCrowd(t)
		crowd.ask(context.Background(), hg.Outbound, "before", gate.Request{Lane: llm})
		crowd.ask(context.Background(), hg.Outbound, "it", gate.Request{Lane: llm, Class: gate.Bulk})
		time.Sleep(2 * time.Second)
		crowd.release("before")
		before := scrape(t, r)
		time.Sleep(time.Second)
		crowd.release("it")
		s := scrape(t, r)
		wait, hold := "headgate_outbound_queue_wait_seconds", "headgate_outbound_hold_seconds"
		bulk, lane := "{lane="+llm+",priority=bulk", "{lane="+llm
		assert.Equal(t, 1.0, s.value(t, wait+"_count"+bulk+"}"))
		assert.Equal(t, 2.0, s.value(t, wait+"_sum"+bulk+"}"))
		assert.Equal(t, 0.0, s.value(t, wait+"_bucket"+bulk+",le=1}"))
		assert.Equal(t, 1.0, s.value(t, wait+"_bucket"+bulk+",le=5}"))
		assert.Equal(t, 1.0, s.value(t, hold+"_count"+lane+"}")-before.value(t, hold+"_count"+lane+"}"))
		assert.Equal(t, 1.0, s.value(t, hold+"_sum"+lane+"}")-before.value(t, hold+"_sum"+lane+"}"))
		assert.Equal(t, 1.0, s.value(t, hold+"_bucket"+lane+",le=1}"))
		assert.Equal(t, 2.0, s.value(t, hold+"_bucket"+lane+",le=2.5}"))
		assert.Equal(t, 0.0, s.value(t, hold+"_bucket"+lane+",le=0.5}"))
		for name := range s {
			if strings.Contains(name, "priority=default") && strings.Contains(name, wait+"_sum") {
				assert.Zero(t, s[name], "who did not wait")
			}
		}
	})
}
