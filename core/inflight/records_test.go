package inflight

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// Every grant is counted once, in its lane and class, wherever its record came from and
// whatever lanes share it; a record is held by one lease at a time.
func TestSharedRecords(t *testing.T) {
	const workers, rounds, lanes = 12, 600, 3
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue, c.InteractiveReserve = 4000, 0, 10 })
	var begun, over [lanes][4]atomic.Int64 // by class, as gate has it
	read := func() {
		var low, high [lanes]int64
		for i := range low {
			for c := range over[i] {
				low[i] += over[i][c].Load()
			}
		}
		s := l.Snapshot()
		for i := range high {
			for c := range begun[i] {
				high[i] += begun[i][c].Load()
			}
		}
		for _, ln := range s.Lanes {
			i := int(ln.Lane[0] - '0')
			if ln.Granted < low[i] || ln.Granted > high[i] {
				t.Errorf("lane %d: %d granted, want %d to %d", i, ln.Granted, low[i], high[i])
			}
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 5))
			var stale gate.Lease
			for n := range rounds {
				var held []gate.Lease
				for range 1 + r.IntN(20) {
					i, class := r.IntN(lanes), gate.Interactive+gate.Class(r.IntN(3))
					begun[i][class].Add(1)
					lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint(i), Class: class})
					if err != nil {
						t.Error(err)
						return
					}
					over[i][class].Add(1)
					held = append(held, lease)
				}
				stale.Release()
				for i, lease := range held {
					for _, other := range held[:i] {
						if lease == other {
							t.Error("two leases are one")
						}
					}
					if !lease.Live() || lease.Waited() != 0 {
						t.Error("a lease has been ended by another")
					}
				}
				for _, lease := range held {
					lease.Release()
					lease.Release()
					stale = lease
				}
				if n%100 == 0 {
					read()
				}
			}
		})
	}
	wg.Wait()
	read() // now the bounds are one
	wantIdle(t, l)
}

// A lane is found by the text of its key, whoever has it, until it makes way.
func TestLanesByText(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxLanes = 4, 3 })
	keys := []string{"a", "https://u:secret@host|b", "https://host|c"}
	again := func(key string) string { return string([]byte(key)) }
	use := func(key string) gate.Lease {
		t.Helper()
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: key})
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	granted := func() (n []int64) {
		for _, s := range l.Snapshot().Lanes {
			n = append(n, s.Granted)
		}
		return n
	}
	kept := use(keys[0])
	for _, key := range keys {
		for range 3 {
			use(key).Release()
			use(again(key)).Release()
		}
	}
	if got := granted(); !slices.Equal(got, []int64{7, 6, 6}) {
		t.Errorf("%v granted by lane", got)
	}
	c := DefaultConfig()
	c.MaxInflight, c.MaxLanes = 4, 1
	if err := l.Reconfigure(c); err != nil {
		t.Fatal(err)
	}
	use("d").Release() // ends all lanes but the first, and has no room itself
	for _, key := range keys {
		use(key).Release()
		use(again(key)).Release()
	}
	if got := granted(); !slices.Equal(got, []int64{9, 5}) {
		t.Errorf("%v granted by lane, when one is left and the others share theirs", got)
	}
	kept.Release()
	wantIdle(t, l)
}

// At the largest limit, and without one, all are let in and counted.
func TestLargestLimit(t *testing.T) {
	const many = 2000
	c := DefaultConfig()
	c.MaxInflight = most + 1
	if _, err := New(c); err == nil {
		t.Error("a limit that is too large is taken")
	}
	for _, n := range []int{0, most} {
		l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = n, 0 })
		var held []gate.Lease
		for i := range many {
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: gate.Interactive + gate.Class(i%3)})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, lease)
		}
		if s := state(t, l); s.Inflight != many || s.Granted != many || s.Limit != n {
			t.Errorf("%d in flight, %d granted, limit %d", s.Inflight, s.Granted, s.Limit)
		}
		for _, lease := range held {
			lease.Release()
		}
		wantIdle(t, l)
	}
}

// An acquire and a release where there is room allocate nothing, whatever lane and
// class come next.
func TestUncontendedAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop records, so that new ones are allocated")
	}
	l := open(t, func(c *Config) { c.MaxInflight = 8 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lanes := []string{"a", "b", "c"}
	n := 0
	round := func() {
		r := gate.Request{Lane: lanes[n%3], Class: gate.Interactive + gate.Class(n/3%3)}
		n += 2
		lease, err := l.Acquire(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		lease.Release()
	}
	for range 1000 {
		round()
	}
	if got := testing.AllocsPerRun(1000, round); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
