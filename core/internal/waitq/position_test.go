package waitq

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestPosition: by hand, in the cases that are plain.
func TestPosition(t *testing.T) {
	want := func(t *testing.T, want int, c *call) {
		t.Helper()
		c.wants(t, TimedOut)
		if c.result.Position != want {
			t.Errorf("position %d, want %d", c.result.Position, want)
		}
	}
	t.Run("one flow", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			var calls []*call
			for range 5 {
				calls = append(calls, ask(q, Request{Cost: 1}))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, c := range calls {
				want(t, 1, c) // those before it have left before it
			}
			releaseAll(holder)
		})
	})
	t.Run("higher classes", func(t *testing.T) {
		bubble(t, reserving(2, 1), func(t *testing.T, q *Queue) {
			c := conf(2)
			c.Reserve, c.AgingStep = 1, time.Second
			q.Reconfigure(c)
			holders := []*call{ask(q, Request{Class: 2, Cost: 1}), ask(q, Request{Cost: 1})}
			bulk := ask(q, Request{Class: 2, Cost: 1}) // aged, but only the reserve could be its
			time.Sleep(30 * time.Second)
			def := ask(q, Request{Class: 1, Cost: 1})
			time.Sleep(time.Second)
			ask2 := []*call{ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1}), ask(q, Request{Class: 2, Cost: 1})}
			time.Sleep(29 * time.Second)
			synctest.Wait()
			want(t, 1+2+1, bulk)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			want(t, 1+2, def)
			time.Sleep(time.Second)
			synctest.Wait()
			want(t, 1, ask2[0])
			want(t, 1, ask2[1])
			want(t, 1, ask2[2])
			releaseAll(holders...)
		})
	})
	t.Run("other flows", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			heavy := ask(q, Request{Cost: 9, Flow: "heavy"})
			time.Sleep(time.Second)
			var calls []*call
			for i := range 6 { // three flows of two each, whose first ones go before
				calls = append(calls, ask(q, Request{Cost: 1, Flow: string(rune('a' + i%3))}))
			}
			later := ask(q, Request{Cost: 10, Flow: "later"})
			time.Sleep(59 * time.Second)
			synctest.Wait()
			want(t, 1+3, heavy)
			retime(q, conf(1), time.Hour)
			releaseAll(holder)
			releaseAll(calls...)
			releaseAll(later)
		})
	})
	t.Run("displaced", func(t *testing.T) {
		c := conf(1)
		c.MaxWaiters = 5
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			a, b := ask(q, Request{Class: 1, Cost: 1, Flow: "a"}), ask(q, Request{Class: 1, Cost: 1, Flow: "b"})
			a2, a3 := ask(q, Request{Class: 1, Cost: 1, Flow: "a"}), ask(q, Request{Class: 1, Cost: 1, Flow: "a"})
			urgent := ask(q, Request{Cost: 1})
			last := ask(q, Request{Cost: 1})
			a3.wants(t, Displaced)
			if a3.result.Position != 1+1+2 { // urgent, and a and a2 of its own flow, which has its turn before b
				t.Errorf("position %d", a3.result.Position)
			}
			releaseAll(holder, urgent, last, a, b, a2)
		})
	})
	t.Run("nobody else's", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			if holder.result.Position != 0 {
				t.Errorf("position %d of a grant", holder.result.Position)
			}
			a, b := ask(q, Request{Cost: 1}), ask(q, Request{Cost: 1})
			a.leave()
			q.Close()
			synctest.Wait()
			if a.result.Position != 0 || b.result.Position != 0 {
				t.Errorf("positions %d and %d", a.result.Position, b.result.Position)
			}
			releaseAll(holder)
		})
	})
}

// TestPositionIsTheOrder: with equal costs and weights and without aging, the
// position of the oldest waiter, which is the one that times out, is one more than
// the number of grants that come before its own.
func TestPositionIsTheOrder(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 8))
		e := newEngine(New(conf(1)))
		q := e.q
		e.enter(Request{Cost: 1})
		for range 5 + r.IntN(200) {
			e.now += r.Int64N(3)
			if r.IntN(4) == 0 && e.leases > 0 {
				e.release(0, 1) // of whatever class it is: classes have no bounds here
				if e.leases == 0 {
					e.enter(Request{Cost: 1})
				}
				continue
			}
			req := Request{Class: r.IntN(2), Cost: 1, Flow: string(rune('a' + r.IntN(1+r.IntN(12))))}
			w := q.getWaiter(req)
			w.deadline = never
			if r.IntN(3) == 0 {
				w.arrival = e.now - r.Int64N(30)
			}
			e.locked(func() { q.enterLocked(w, req.Flow, e.now) })
		}
		oldest := q.all.oldest(inAll)
		if oldest == nil {
			continue
		}
		want, got := int64(1), q.positionLocked(oldest)
		e.onGrant = func(w *waiter) {
			if oldest != nil && w != oldest {
				want++
			} else {
				oldest = nil
			}
		}
		for oldest != nil {
			e.release(0, 1)
		}
		if got != want {
			t.Fatalf("seed %d: position %d, served as number %d", seed, got, want)
		}
	}
}

// TestPositionAmongManyFlows: with more flows than are counted it is an estimate.
func TestPositionAmongManyFlows(t *testing.T) {
	const flows = 10_000
	e := newEngine(New(conf(1)))
	e.enter(Request{Cost: 1})
	r := rand.New(rand.NewPCG(1, 2))
	costs := map[int64]int{}
	var ws []*waiter
	for i := range flows {
		cost := 1 + r.Int64N(1000)
		costs[cost]++
		ws = append(ws, e.enter(Request{Cost: cost, Flow: fmt.Sprint(i)}))
	}
	before := make([]int, 1002)
	for cost := 1; cost <= 1000; cost++ {
		before[cost+1] = before[cost] + costs[int64(cost)]
	}
	for range 200 {
		w := ws[r.IntN(flows)]
		got := int(e.q.positionLocked(w))
		if low, high := before[w.cost]-flows/5, before[w.cost+1]+flows/5; got < low || got > high {
			t.Errorf("position %d of one whose flow is %d to %d in line", got, before[w.cost], before[w.cost+1])
		}
	}
	// Each of all who time out at once has one, without a look at all others.
	e.now += int64(time.Minute)
	e.locked(func() { e.q.settleLocked(e.now) })
	for _, w := range ws {
		if w.outcome != TimedOut || w.charge < 1 || w.charge > flows*6/5 {
			t.Fatalf("outcome %d, position %d", w.outcome, w.charge)
		}
	}
}
