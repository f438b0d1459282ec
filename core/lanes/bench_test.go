package lanes

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/headgate-go/headgate/core/gate"
)

// Where there is room, a request costs no allocation, in every mode.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and makes sync.Pool drop records at random")
	}
	ctx := gate.WithFlow(context.Background(), "tenant-7", 3)
	for name, change := range map[string]func(*Config){
		"one queue": func(*Config) {}, "lanes": virtual, "fixed": func(c *Config) { c.Algorithm = Fixed },
		"shadow": func(c *Config) { c.Mode = gate.Shadow; c.VirtualLanes = true }, "off": func(c *Config) { c.Mode = gate.Off },
		"exempt": func(c *Config) { c.Exempt = []string{"/livez"} },
	} {
		l := enforcing(t, change)
		var g gate.Gate = l
		for _, r := range []gate.Request{{Cost: 6, Path: "/livez"}, {Bytes: 1000}, {Cost: 6, Flow: "another"}} {
			n := testing.AllocsPerRun(1000, func() {
				lease, err := g.Acquire(ctx, r)
				if err != nil {
					t.Fatal(err)
				}
				lease.Release()
			})
			if n != 0 {
				t.Errorf("%s, %+v: %v allocations, want none", name, r, n)
			}
		}
	}
}

// What a request costs where there is room, statistics on.
func BenchmarkUncontended(b *testing.B) {
	ctx := gate.WithFlow(context.Background(), "tenant-7", 1)
	for name, change := range map[string]func(*Config){"one_queue": func(*Config) {}, "lanes": virtual} {
		var g gate.Gate = enforcing(b, change)
		for _, r := range []struct {
			name string
			r    gate.Request
		}{{"cost", gate.Request{Cost: 6, Flow: "tenant-7"}}, {"priced", gate.Request{Bytes: 1000}}} {
			b.Run(name+"/"+r.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					lease, err := g.Acquire(ctx, r.r)
					if err != nil {
						b.Fatal(err)
					}
					lease.Release()
				}
			})
		}
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if lease, err := g.Acquire(ctx, gate.Request{Cost: 6, Flow: "tenant-7"}); err == nil {
						lease.Release()
					}
				}
			})
		})
	}
}

// One dispatch and one arrival while many lanes wait: the cost of a turn does not depend
// on how many there are.
func BenchmarkDispatch(b *testing.B) {
	for _, tenants := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d_lanes", tenants), func(b *testing.B) {
			l := enforcing(b, func(c *Config) {
				c.Mode, c.VirtualLanes, c.MaxLanes = gate.Shadow, true, 20_000
				c.MaxQueueCount, c.MaxQueueCost = 10_000, 100_000
				c.MaxWait, c.Algorithm, c.InitialLimit = 1<<40, Fixed, 8
			})
			// In shadow mode those who wait need no goroutine, so that the engine is
			// what is measured, and not the scheduler.
			leases := make([]gate.Lease, tenants)
			names := make([]string, tenants)
			for i := range leases {
				names[i] = fmt.Sprint("tenant-", i)
				leases[i], _ = l.Acquire(context.Background(), gate.Request{Flow: names[i], Cost: 1})
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				leases[i].Release()
				leases[i], _ = l.Acquire(context.Background(), gate.Request{Flow: names[i], Cost: 1})
				i = (i + 1) % tenants
			}
			for _, lease := range leases {
				lease.Release()
			}
		})
	}
}

// A newcomer when every lane there may be is in use: what it costs does not depend on how
// many there are.
func BenchmarkNewcomer(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d_busy_lanes", n), func(b *testing.B) {
			l := enforcing(b, func(c *Config) {
				limited(mostOf)(c)
				c.MaxLimit, c.MaxLanes = mostOf, n
			})
			leases := make([]gate.Lease, n)
			for i := range leases {
				leases[i] = take(b, l, fmt.Sprint("busy-", i), 1)
			}
			var names [4096]string
			for i := range names {
				names[i] = fmt.Sprint("newcomer-", i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				take(b, l, names[i%len(names)], 1).Release()
				i++
			}
			if over := l.Snapshot().Overflowed; over < int64(i) {
				b.Fatalf("%d of %d newcomers shared the overflow lane", over, i)
			}
			for _, lease := range leases {
				lease.Release()
			}
		})
	}
}

// idleLaneBytes is what one idle lane takes, without its key.
func idleLaneBytes() int64 {
	const n = 20_000
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%08d", i) // 8 bytes, which count
	}
	var c Controller
	t := &c.lanes
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for _, key := range keys {
		t.pin(&c, key, mostOf).refs.Add(-1)
	}
	per := (heap() - before) / n
	runtime.KeepAlive(t)
	runtime.KeepAlive(keys)
	return per - 8
}

// An idle lane is at most 256 bytes, without its key.
func TestIdleLaneSize(t *testing.T) {
	per := idleLaneBytes()
	t.Logf("%d bytes in all, of which %d are the lane itself", per, unsafe.Sizeof(lane{}))
	if per > 256 {
		t.Errorf("an idle lane takes %d bytes, want at most 256", per)
	}
}

func BenchmarkIdleLane(b *testing.B) {
	per := int64(0)
	for b.Loop() {
		per = idleLaneBytes()
	}
	b.ReportMetric(float64(per), "B/lane")
}
