package admission

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// container is a cgroup whose use and limit, of 8 GiB at first, can change.
type container struct{ used, limit atomic.Int64 }

func (c *container) Open(name string) (fs.File, error) {
	return fstest.MapFS{
		"proc/meminfo":                     {Data: []byte("MemTotal:  67108864 kB\n")},
		"proc/self/cgroup":                 {Data: []byte("0::/app\n")},
		"sys/fs/cgroup/app/memory.max":     {Data: fmt.Appendln(nil, c.limit.Load())},
		"sys/fs/cgroup/app/memory.current": {Data: fmt.Appendln(nil, c.used.Load())},
		"sys/fs/cgroup/app/memory.stat":    {Data: []byte("inactive_file 0\nactive_file 0\n")},
	}.Open(name)
}

// monitored opens a monitor of a container and n budgets that go by it. Nobody closes them.
func monitored(t *testing.T, n int) (*container, *pressure.Monitor, []*Budget) {
	t.Helper()
	var box container
	box.limit.Store(8 * gib)
	p := pressure.DefaultConfig()
	p.Collect, p.Root = false, &box
	m, err := pressure.New(p)
	if err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	c.Pressure, c.MaxInflightBytes = m, 8*mib
	var all []*Budget
	for range n {
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return &box, m, all
}

const (
	calm = 1 * gib
	full = 8 * gib
)

func seconds(n int) {
	time.Sleep(time.Duration(n) * time.Second)
	synctest.Wait()
}

// Budgets that share a monitor go by it, each until it is closed. A closed one says that it is
// closed, whatever the pressure was.
func TestBudgetsShareAMonitor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		box, m, all := monitored(t, 2)
		defer m.Close()
		first, second := all[0], all[1]
		defer second.Close()
		box.used.Store(full)
		seconds(3)
		for _, b := range all {
			_, err := b.Acquire(t.Context(), gate.Request{Bytes: mib})
			refused(t, err, gate.ResourcePressure)
		}
		first.Close()
		last := first.set.Load()
		for _, n := range []int64{0, 1, mib, -1} {
			_, err := first.Acquire(t.Context(), gate.Request{Bytes: n})
			refused(t, err, gate.ShuttingDown)
		}
		box.used.Store(calm)
		seconds(2)
		admit(t, second, mib).Release()
		if first.set.Load() != last {
			t.Error("the monitor still tells a closed budget")
		}
	})
}

// B29, all the way: memory.max changes, and within a second the budget, with the leases of
// the old one intact.
func TestB29ThroughTheMonitor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		box, m, all := monitored(t, 1)
		defer m.Close()
		b := all[0]
		defer b.Close()
		reload(t, b, func(c *Config) { c.MaxInflightBytes = Auto })
		budgetIs := func(limit, want int64) {
			t.Helper()
			box.limit.Store(limit)
			seconds(1)
			if s := b.Snapshot(); s.MaxInflightBytes != want || s.CeilingBytes != limit || s.BudgetSource != "cgroup" {
				t.Errorf("under %d bytes: %+v, want a budget of %d", limit, s, want)
			}
		}
		budgetIs(512*mib, 16*mib)
		lease := admit(t, b, 12*mib)
		budgetIs(256*mib, 8*mib)
		inflight(t, b, 12*mib)
		w := acquire(t.Context(), b, gate.Request{Bytes: mib})
		waits(t, w)
		budgetIs(gib, 32*mib)
		granted(t, w).Release()
		lease.Release()
	})
}

// A monitor that was closed before the budget, which it should not be, refuses nothing.
func TestMonitorClosedFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		box, m, all := monitored(t, 1)
		b := all[0]
		defer b.Close()
		box.used.Store(full)
		seconds(3)
		_, err := b.Acquire(t.Context(), gate.Request{Bytes: mib})
		refused(t, err, gate.ResourcePressure)
		m.Close()
		seconds(1)
		if s := b.Snapshot(); s.PressureSeverity != pressure.Normal || s.CeilingBytes != 8*gib {
			t.Errorf("%+v", s)
		}
		admit(t, b, mib).Release()
		reload(t, b, func(c *Config) { c.MaxWaiters = 7 })
		admit(t, b, mib).Release()
	})
}

// Budgets and their monitor are closed and reconfigured at the same time, in any order, while
// the severity changes and bodies come: nothing hangs and nothing is left.
func TestMonitorAndBudgetsEnd(t *testing.T) {
	for seed := range uint64(50) {
		bubble(t, func(t *testing.T) {
			box, m, all := monitored(t, 3)
			r := rand.New(rand.NewPCG(seed, 33))
			at := func(what func()) func() {
				d := time.Duration(r.Int64N(int64(20 * time.Second)))
				return func() {
					time.Sleep(d)
					what()
				}
			}
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(at(func() { box.used.Store(full) }))
				wg.Go(at(func() { box.used.Store(calm) }))
			}
			for range 2 {
				wg.Go(at(m.Close))
				p := pressure.DefaultConfig()
				p.Collect, p.Root, p.Period = false, box, 100*time.Millisecond
				wg.Go(at(func() {
					if err := m.Reconfigure(p); err != nil {
						t.Error(err)
					}
				}))
			}
			for _, b := range all {
				wg.Go(at(b.Close))
				wg.Go(at(b.Close))
				wg.Go(at(func() { reload(t, b, func(c *Config) { c.QueueTimeout = time.Second }) }))
				for range 50 {
					n := r.Int64N(8 * mib)
					wg.Go(at(func() {
						l, err := b.Acquire(context.Background(), gate.Request{Bytes: n})
						if err == nil {
							time.Sleep(time.Second)
						}
						l.Release()
					}))
				}
			}
			wg.Wait()
			for _, b := range all {
				checkEmpty(t, b)
			}
		})
	}
}
