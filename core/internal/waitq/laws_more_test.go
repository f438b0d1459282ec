package waitq

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The laws W8 to W12; W7's speed is in bench_test.go, W8's bound in fairness_test.go.

// TestW8FairInCost: two flows that always wait get cost in the ratio of their
// weights, whatever their requests cost.
func TestW8FairInCost(t *testing.T) {
	q := New(conf(1))
	e := newEngine(q)
	got := map[int64]int64{} // by weight
	e.onGrant = func(w *waiter) { got[int64(w.weight)] += w.cost }
	e.enter(Request{Cost: 1, Weight: 5})
	for range 400 {
		e.enter(Request{Cost: 1, Flow: "a", Weight: 1})
		e.enter(Request{Cost: 1, Flow: "b", Weight: 3})
	}
	for range 400 {
		e.release(0, 1)
	}
	if got[1] != 100 || got[3] != 300 {
		t.Errorf("cost granted to weights 1 and 3: %d and %d, want 100 and 300", got[1], got[3])
	}
}

// TestW9KeptRoom: two grants may pass a head, the third may not; who stands
// ahead of it in the order may.
func TestW9KeptRoom(t *testing.T) {
	bubble(t, conf(8), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Class: 1, Cost: 4})
		head := ask(q, Request{Class: 1, Cost: 8})
		one, two, three := ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 1, Cost: 1}), ask(q, Request{Class: 1, Cost: 1})
		wantAll(t, Granted, one, two)
		wantAll(t, Queued, head, three)
		urgent := ask(q, Request{Class: 0, Cost: 1})
		urgent.wants(t, Granted)
		behind := ask(q, Request{Class: 2, Cost: 1})
		behind.wants(t, Queued)
		releaseAll(holder, one, two, urgent)
		head.wants(t, Granted)
		wantAll(t, Queued, three, behind)
		head.release()
		wantAll(t, Granted, three, behind)
		releaseAll(three, behind)
	})
	t.Run("the passer is the oldest that fits with its cost rounded up", func(t *testing.T) {
		bubble(t, conf(16), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 16})
			head := ask(q, Request{Cost: 15, Flow: "a"})
			five, four := ask(q, Request{Cost: 5, Flow: "a"}), ask(q, Request{Cost: 4, Flow: "a"})
			holder.lease.Shrink(holder.gen, 7) // 5 rounds up to 8
			synctest.Wait()
			four.wants(t, Granted)
			wantAll(t, Queued, head, five)
			releaseAll(four, holder)
			head.wants(t, Granted)
			releaseAll(head, five)
		})
	})
	t.Run("a class at its limit is not passed", func(t *testing.T) {
		c := conf(4)
		c.ClassLimit[1] = 1
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Class: 1, Cost: 1})
			limited := ask(q, Request{Class: 1, Cost: 4})
			for range 10 { // any number of grants, none of which counts
				x := ask(q, Request{Class: 0, Cost: 3})
				y := ask(q, Request{Class: 2, Cost: 3})
				wantAll(t, Granted, x)
				wantAll(t, Queued, y)
				x.release()
				y.wants(t, Granted)
				y.release()
			}
			limited.wants(t, Queued)
			holder.release()
			limited.wants(t, Granted)
			releaseAll(limited)
		})
	})
}

// TestW10CountersComeBack, however a holder ends and however often it releases.
func TestW10CountersComeBack(t *testing.T) {
	ends := map[string]func(){
		"return": func() {},
		"panic":  func() { panic("holder") },
		"goexit": func() { runtime.Goexit() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf(2), func(t *testing.T, q *Queue) {
				for i := range 20 {
					go func() {
						defer func() { _ = recover() }()
						var l Lease
						r := Request{Class: i % Classes, Cost: 1 + int64(i%3), Flow: string(rune('a' + i%2))}
						if q.Acquire(context.Background(), &l, r).Outcome != Granted {
							t.Error("refused")
							return
						}
						gen := l.Gen()
						defer l.Release(gen)
						defer l.Release(gen)
						l.Shrink(gen, 1)
						l.Grow(gen, 1)
						time.Sleep(time.Second)
						end()
					}()
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestW11FullQueue: who gives way in a full queue, and who is refused.
func TestW11FullQueue(t *testing.T) {
	full := func(limit int64, waiters int, step time.Duration) Config {
		c := conf(limit)
		c.MaxWaiters, c.AgingStep = waiters, step
		return c
	}
	t.Run("a flood cannot fill it against others", func(t *testing.T) {
		bubble(t, full(1, 10, 0), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			var flood, others []*call
			for range 50 {
				flood = append(flood, ask(q, Request{Cost: 1, Flow: "flood"}))
			}
			wantAll(t, Queued, flood[:10]...)
			wantAll(t, Full, flood[10:]...)
			for i := range 5 {
				others = append(others, ask(q, Request{Cost: 1, Flow: string(rune('a' + i))}))
				flood[9-i].wants(t, Displaced) // the newest
			}
			wantAll(t, Queued, others...)
			ask(q, Request{Cost: 1, Flow: "a"}).wants(t, Queued) // 2 of 10, the flood has 4
			ask(q, Request{Cost: 1, Flow: "flood"}).wants(t, Full)
			q.Close()
			releaseAll(holder)
		})
	})
	t.Run("a lower class gives way, unless it has aged", func(t *testing.T) {
		bubble(t, full(1, 2, 10*time.Second), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			old := ask(q, Request{Class: 2, Cost: 1})
			time.Sleep(10 * time.Second)
			young := ask(q, Request{Class: 2, Cost: 1})
			ask(q, Request{Class: 1, Cost: 1}).wants(t, Queued)
			young.wants(t, Displaced)
			ask(q, Request{Class: 1, Cost: 1}).wants(t, Full) // old is of class 1 by now
			ask(q, Request{Class: 2, Cost: 1}).wants(t, Full)
			urgent := ask(q, Request{Class: 0, Cost: 1})
			wantAll(t, Queued, urgent)
			old.wants(t, Displaced)
			q.Close()
			releaseAll(holder)
		})
	})
	t.Run("who can start at once needs no place", func(t *testing.T) {
		c := full(4, 2, time.Second)
		c.ClassLimit[2] = 1
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Class: 2, Cost: 1})
			a, b := ask(q, Request{Class: 2, Cost: 1}), ask(q, Request{Class: 2, Cost: 1})
			time.Sleep(10 * time.Second) // they have aged to class 0: none gives way
			urgent := ask(q, Request{Class: 0, Cost: 3})
			urgent.wants(t, Granted)
			wantAll(t, Queued, a, b)
			ask(q, Request{Class: 0, Cost: 3}).wants(t, Full)
			releaseAll(urgent, holder)
			a.wants(t, Granted)
			releaseAll(a, b)
		})
	})
	t.Run("who may not start leaves no trace", func(t *testing.T) {
		bubble(t, full(8, 3, 0), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 4})
			head := ask(q, Request{Cost: 8, Flow: "b"})
			releaseAll(ask(q, Request{Cost: 1, Flow: "b"}), ask(q, Request{Cost: 1, Flow: "b"}))
			b, c := ask(q, Request{Cost: 1, Flow: "b"}), ask(q, Request{Cost: 1, Flow: "b"})
			wantAll(t, Queued, head, b, c) // the room is kept for head
			before := q.Snapshot()
			ask(q, Request{Cost: 1, Flow: "b", Weight: 9}).wants(t, Full)
			ask(q, Request{Cost: 3, Class: 1}).wants(t, Full)
			after := q.Snapshot()
			before.Outcomes[0][Full]++
			before.Outcomes[1][Full]++
			if before != after || q.classes[0].flows["b"].weight != 1 {
				t.Errorf("before %+v\nafter  %+v", before, after)
			}
			releaseAll(holder, head, b, c)
		})
	})
	t.Run("what waiters hold", func(t *testing.T) {
		c := conf(1)
		c.MaxHeld = 10
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1, Held: 100}) // who does not wait is not counted
			holder.wants(t, Granted)
			a, b := ask(q, Request{Cost: 3, Held: 5, Flow: "a"}), ask(q, Request{Cost: 3, Held: 5, Flow: "a"})
			ask(q, Request{Cost: 1, Held: 6, Flow: "b"}).wants(t, Full) // one victim is not enough
			wantAll(t, Queued, a, b)
			ask(q, Request{Cost: 1, Held: 5, Flow: "b"}).wants(t, Queued)
			wantAll(t, Displaced, b)
			ask(q, Request{Cost: 1, Flow: "c"}).wants(t, Queued)
			q.Close()
			releaseAll(holder)
		})
	})
}

// TestW12Growth takes free room ahead of waiters, kept room too, or fails at once.
func TestW12Growth(t *testing.T) {
	bubble(t, conf(8), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 4})
		head := ask(q, Request{Cost: 8})
		if !holder.lease.Grow(holder.gen, 3) {
			t.Fatal("no growth into the room that is kept for a waiter")
		}
		if holder.lease.Grow(holder.gen, 2) {
			t.Fatal("growth by 2 into 1")
		}
		if got := q.InUse(); got != 7 {
			t.Fatalf("in use %d after a growth that failed, want 7", got)
		}
		holder.lease.Shrink(holder.gen, 100) // at most what it holds
		synctest.Wait()
		head.wants(t, Granted)
		if holder.lease.Grow(holder.gen, 1) {
			t.Fatal("growth with nothing free")
		}
		holder.release()
		if !holder.lease.Grow(holder.gen, 100) { // it is no longer held: nothing to do
			t.Fatal("growth of a released lease")
		}
		releaseAll(head)
	})
}

// TestTurnLapses: the head of an aged turn that cannot fit keeps higher classes
// waiting for two steps, then owes as if it had been granted. No event is needed.
func TestTurnLapses(t *testing.T) {
	c := conf(8)
	c.AgingStep = time.Second
	bubble(t, c, func(t *testing.T, q *Queue) {
		long := ask(q, Request{Cost: 1}) // goes on through all of it
		full := ask(q, Request{Cost: 7})
		wide := ask(q, Request{Class: 1, Cost: 8, Flow: "wide"})
		time.Sleep(time.Second)
		small := ask(q, Request{Cost: 5, Flow: "small"})
		full.release() // the wide one's turn: the small one may pass
		small.wants(t, Granted)
		small.release()
		var late []*call
		for i := range 3 {
			late = append(late, ask(q, Request{Cost: 2, Flow: string(rune('a' + i))}))
		}
		late[0].wants(t, Granted) // the second pass
		late[1].wants(t, Queued)
		time.Sleep(2*time.Second - 1)
		late[1].wants(t, Queued)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantAll(t, Granted, late[1:]...)
		wide.wants(t, Queued)
		releaseAll(late...)
		more := ask(q, Request{Cost: 2}) // it owes 24 still
		more.wants(t, Granted)
		releaseAll(more, long)
		wide.wants(t, Granted)
		releaseAll(wide)
	})
}

// TestAgedFlowGivesWay: aged or not, one flow cannot fill a queue against others.
func TestAgedFlowGivesWay(t *testing.T) {
	c := conf(4)
	c.AgingStep, c.MaxWaiters = time.Second, 5
	bubble(t, c, func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 4})
		var flood []*call
		for range 5 {
			flood = append(flood, ask(q, Request{Class: 1, Cost: 2, Flow: "flood"}))
		}
		time.Sleep(time.Minute - 1 - 50*time.Second)
		other := ask(q, Request{Cost: 1, Flow: "other"})
		other.wants(t, Queued)
		flood[4].wants(t, Displaced)
		own := ask(q, Request{Cost: 1, Flow: "flood"}) // its own flow is the longest
		own.wants(t, Full)
		releaseAll(append(flood[:4], holder, other)...)
	})
}

// TestK1LongFlows: a flow's name is kept in bounded memory, and long ones differ.
func TestK1LongFlows(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		long := strings.Repeat("k", 64<<10)
		calls := []*call{ask(q, Request{Cost: 1})}
		for _, flow := range []string{long, long + "2", long, "short"} {
			calls = append(calls, ask(q, Request{Cost: 1, Flow: flow}))
		}
		if n := len(q.classes[0].flows); n != 3 {
			t.Errorf("%d flows, want 3", n)
		}
		for name := range q.classes[0].flows {
			if len(name) > 128 {
				t.Errorf("a name of %d bytes is kept", len(name))
			}
		}
		releaseAll(calls...)
	})
}
