package waitq

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counter is an owner with shared records: it serves units as the policies do.
type counter struct{ records []Lease }

func newCounter(n int) *counter {
	c := &counter{records: make([]Lease, n)}
	for i := range c.records {
		c.records[i].Share()
	}
	return c
}

func (c *counter) Entered() {}

func (c *counter) Shared(yield func(*Lease) bool) {
	for i := range c.records {
		if !yield(&c.records[i]) {
			return
		}
	}
}

// queue returns a queue of units that c owns.
func (c *counter) queue(limit int64, change func(*Config)) *Queue {
	conf := conf(limit)
	conf.Units, conf.Owner = true, c
	if change != nil {
		change(&conf)
	}
	return New(conf)
}

// serve takes a unit at once, with one of the records or with own, or returns nil.
func (c *counter) serve(q *Queue, at, class int, own *Lease) (*Lease, uint64) {
	l := &c.records[at]
	switch gen, taken := q.TryUnit(l, class); {
	case !taken:
		return nil, 0
	case gen != 0:
		return l, gen
	}
	return own, own.HoldUnit(q, class, l)
}

// TestSharedCountIsExact: whatever records are turned while it is read, the count of
// the grants that did not queue lies between those that were over before and those that
// had begun after.
func TestSharedCountIsExact(t *testing.T) {
	const workers, limit = 8, 64
	rounds := 60_000
	if testing.Short() || raceEnabled {
		rounds = 2000
	}
	c := newCounter(4)
	queues := []*Queue{c.queue(limit, nil), c.queue(limit, nil), c.queue(limit, func(c *Config) { c.TrackWaits = true })}
	var begun, over [3][Classes]atomic.Int64
	var wg, reading sync.WaitGroup
	var stop atomic.Bool
	for i, q := range queues {
		reading.Go(func() {
			for !stop.Load() {
				var low, high [Classes]int64
				for class := range low {
					low[class] = over[i][class].Load()
				}
				got := q.Snapshot().Immediate
				for class := range high {
					high[class] = begun[i][class].Load()
					if got[class] < low[class] || got[class] > high[class] {
						t.Errorf("queue %d, class %d: %d, want %d to %d", i, class, got[class], low[class], high[class])
						return
					}
				}
				q.Roll()
				runtime.Gosched()
			}
		})
	}
	for i := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			var own [2]Lease
			for range rounds {
				n, class := r.IntN(len(queues)), r.IntN(Classes)
				begun[n][class].Add(1)
				l, gen := c.serve(queues[n], r.IntN(len(c.records)), class, &own[0])
				if l == nil {
					t.Error("refused with room for all")
					return
				}
				over[n][class].Add(1)
				if r.IntN(4) == 0 { // and hold a second one of the same kind
					begun[n][class].Add(1)
					second, gen := c.serve(queues[n], r.IntN(len(c.records)), class, &own[1])
					over[n][class].Add(1)
					second.Release(gen)
				}
				if l.Class() != class || l.Queue() != queues[n] || !l.Live(gen) || l.Waited(gen) != 0 {
					t.Error("the record is another's")
				}
				if !l.Release(gen) || l.Live(gen) {
					t.Error("not released")
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	reading.Wait()
	for i, q := range queues {
		wantIdle(t, q)
		for class, n := range q.Snapshot().Immediate {
			if want := begun[i][class].Load(); n != want {
				t.Errorf("queue %d, class %d: %d, want %d", i, class, n, want)
			}
		}
	}
	total := queues[2].Waits().Total
	for class := range total {
		if got, want := total[class].Buckets[0], begun[2][class].Load(); got != want {
			t.Errorf("%d waits of 0 in class %d, want %d", got, class, want)
		}
	}
	all := begun[2][0].Load() + begun[2][1].Load() + begun[2][2].Load()
	if got, most := held(queues[2]), int64(sampleMask*(len(c.records)+Classes)); got > all || got < all-most {
		t.Errorf("%d holds of %d leases, want at most %d fewer", got, all, most)
	}
	if got := queues[2].Waits().Count; got != all {
		t.Errorf("%d waits in the window", got)
	}
}

// TestSharedRecordsTurn: a record serves one queue and class until it is turned, which
// it is not while it is out.
func TestSharedRecordsTurn(t *testing.T) {
	c := newCounter(1)
	a, b := c.queue(100, nil), c.queue(100, nil)
	record := &c.records[0]
	var own Lease
	l, gen := c.serve(a, 0, 1, &own) // the first one turns it
	if l != &own {
		t.Fatal("a record that serves nobody is filled")
	}
	first, firstGen := c.serve(a, 0, 1, &own)
	if first != record {
		t.Fatal("it has not been turned")
	}
	var mine [40]Lease
	for i := range mine {
		if got, gen := c.serve(b, 0, 2, &mine[i]); got != &mine[i] || !got.Release(gen) {
			t.Fatal("a record that is out is filled again")
		}
	}
	if record.Queue() != a || record.Class() != 1 {
		t.Fatal("a record that is out has been turned")
	}
	first.Release(firstGen)
	turned := 0
	for turned < 32 {
		got, gen := c.serve(b, 0, 2, &mine[0])
		got.Release(gen)
		if turned++; got == record {
			break
		}
	}
	if turned < 2 || turned > turnMask+2 {
		t.Errorf("turned at the %dth grant of another queue", turned)
	}
	if l.Release(gen); record.Release(firstGen) || record.Live(firstGen) {
		t.Error("a lease from before the turn is held")
	}
	if s, u := a.Snapshot(), b.Snapshot(); s.Immediate != [Classes]int64{1: 2} || u.Immediate != [Classes]int64{2: 40 + int64(turned)} {
		t.Errorf("%v and %v", s.Immediate, u.Immediate)
	}
	wantIdle(t, a)
	wantIdle(t, b)
}

// TestSharedCountMoves: a record takes its count to the queue that it leaves under that
// queue's lock, and brings none to the other.
func TestSharedCountMoves(t *testing.T) {
	c := newCounter(1)
	a, b := c.queue(100, nil), c.queue(100, nil)
	record := &c.records[0]
	var own Lease
	for range 5 {
		l, gen := c.serve(a, 0, 1, &own)
		l.Release(gen)
	}
	a.mu.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { record.turn(b, packUnit(2)) })
	for record.gen.Load()&changing == 0 && record.Queue() == a {
		runtime.Gosched()
	}
	for range 1000 {
		runtime.Gosched()
		if n := a.immediateLocked(); n[1] != 5 || record.Queue() != a {
			t.Errorf("%d grants are counted while the lock is held, want 5", n[1])
			break
		}
	}
	a.mu.Unlock()
	wg.Wait()
	if record.Queue() != b || record.Class() != 2 || a.Snapshot().Immediate[1] != 5 || b.Snapshot().Immediate != [Classes]int64{} {
		t.Errorf("%v and %v", a.Snapshot().Immediate, b.Snapshot().Immediate)
	}
	record.base.Add(1) // as it is just before it has turned
	if n := b.Snapshot().Immediate; n != [Classes]int64{} {
		t.Errorf("%v", n)
	}
}

// TestSharedSampling: of the leases of a shared record the first 16 are timed, and then
// one in 64.
func TestSharedSampling(t *testing.T) {
	c := newCounter(1)
	units, costs := c.queue(4, nil), New(conf(4))
	var own, byCost Lease
	byCost.Share()
	for name, take := range map[string]func() (*Lease, uint64){
		"units": func() (*Lease, uint64) { return c.serve(units, 0, 1, &own) },
		"costs": func() (*Lease, uint64) { gen, _ := costs.TryShared(&byCost, 3); return &byCost, gen },
	} {
		l, gen := take()
		l.Release(gen)
		var timed []int
		for i := range 64 * 10 {
			l, gen := take()
			if l == &own || gen == 0 {
				t.Fatal("the record is not filled")
			}
			if l.start != 0 {
				timed = append(timed, i)
			}
			l.Release(gen)
		}
		n := 0
		for n < len(timed) && timed[n] == n {
			n++
		}
		if n < holdSamples-1 || n > holdSamples {
			t.Errorf("%s: the first %d are timed, want %d", name, n, holdSamples)
		}
		if late := timed[n:]; len(late) < 9 || len(late) > 10 {
			t.Errorf("%s: %v are timed of 640", name, timed)
		} else {
			for i := range late[1:] {
				if late[i+1]-late[i] != 64 {
					t.Errorf("%s: %v are timed, want one in 64", name, late)
				}
			}
		}
	}
	if k := units.stats.pace.holds[1]; k == nil || k.n < holdSamples || units.stats.typical(1) == 0 {
		t.Error("the holds are not known")
	}
}

// TestSharedStress: with shared records, records of their own and a queue, the bounds
// hold, no unit is lost, nobody is left waiting, and no lease is ended by a stale one.
func TestSharedStress(t *testing.T) {
	c := newCounter(6)
	q := c.queue(8, func(c *Config) { c.Timeout, c.Reserve, c.ClassLimit[2] = 24*time.Hour, 3, 4 })
	other := c.queue(100, nil)
	var held atomic.Int64 // 16 bits for each class: one word, so that a look at all is of one moment
	type stale struct {
		l   *Lease
		gen uint64
	}
	late := make(chan stale, 1<<14)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 21))
			var own, elsewhere Lease
			for range 500 {
				class, at := r.IntN(Classes), r.IntN(len(c.records))
				l, gen := c.serve(q, at, class, &own)
				if l == nil {
					if q.Acquire(context.Background(), &own, Request{Class: class, Flow: string(rune('a' + i%5))}).Outcome != Granted {
						t.Error("refused")
						return
					}
					l, gen = &own, own.Gen()
				}
				h := held.Add(1 << (16 * class))
				if zero, one, two := h&0xffff, h>>16&0xffff, h>>32; one+two > 5 || two > 4 || zero+one+two > 8 {
					t.Errorf("%d, %d and %d are held", zero, one, two)
				}
				if r.IntN(3) == 0 {
					runtime.Gosched()
					if l, gen := c.serve(other, at, class, &elsewhere); l == nil || !l.Release(gen) {
						t.Error("no room in the other queue")
					}
				}
				select {
				case s := <-late:
					if s.l.Release(s.gen) || s.l.Live(s.gen) || !s.l.Grow(s.gen, 1) {
						t.Error("a stale lease is held")
					}
					s.l.Shrink(s.gen, 1)
				default:
				}
				held.Add(-1 << (16 * class))
				if !l.Release(gen) || l.Release(gen) {
					t.Error("not released once")
				}
				select {
				case late <- stale{l, gen}:
				default:
				}
			}
		})
	}
	wg.Wait()
	wantIdle(t, q)
	wantIdle(t, other)
}

// TestSharedReleaseWakes: a release of a shared record lets a waiter go, and while
// somebody waits none is filled.
func TestSharedReleaseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter(1)
		q := c.queue(2, nil)
		var own Lease
		a, aGen := c.serve(q, 0, 0, &own)
		b, bGen := c.serve(q, 0, 0, nil)
		waiter := ask(q, Request{Class: 2})
		waiter.wants(t, Queued)
		time.Sleep(time.Second)
		b.Release(bGen)
		synctest.Wait()
		waiter.wants(t, Granted)
		next := ask(q, Request{})
		a.Release(aGen)
		synctest.Wait()
		next.wants(t, Granted)
		third := ask(q, Request{Class: 1})
		third.wants(t, Queued)
		if l, _ := c.serve(q, 0, 0, &own); l != nil {
			t.Error("somebody was faster than who waits")
		}
		releaseAll(third, waiter, next)
		wantIdle(t, q)
		if l, gen := c.serve(q, 0, 0, nil); l == nil || !l.Release(gen) {
			t.Error("the record is not filled any more")
		}
	})
}
