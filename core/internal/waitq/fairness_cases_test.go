package waitq

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// work queues n requests of a flow, each held for d once it is granted, and
// counts those that have finished.
func work(q *Queue, r Request, n int, d time.Duration, finished *atomic.Int64) {
	for range n {
		go func() {
			var l Lease
			if q.Acquire(context.Background(), &l, r).Outcome == Granted {
				time.Sleep(d)
				finished.Add(1)
				l.Release(l.Gen())
			}
		}()
	}
	synctest.Wait()
}

// TestManyTenantsTakeTurns: 10 tenants with 100 requests each at a limit of 2 are
// never more than 2 apart, so no two of them share the slots between them.
func TestManyTenantsTakeTurns(t *testing.T) {
	bubble(t, conf(2), func(t *testing.T, q *Queue) {
		var finished [10]atomic.Int64
		first := ask(q, Request{Cost: 2, Flow: "another"})
		for i := range finished {
			work(q, Request{Cost: 1, Flow: fmt.Sprint(i)}, 100, 10*time.Millisecond, &finished[i])
		}
		first.release()
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			least, most := finished[0].Load(), int64(0)
			for i := range finished {
				least, most = min(least, finished[i].Load()), max(most, finished[i].Load())
			}
			if most-least > 2 {
				t.Fatalf("one tenant has finished %d, another %d", most, least)
			}
		}
	})
}

// TestQuietTenant: behind 1000 requests of one tenant, another's only one is
// served within 2 completions.
func TestQuietTenant(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		var noisy, quiet atomic.Int64
		work(q, Request{Cost: 1, Flow: "noisy"}, 1000, 10*time.Millisecond, &noisy)
		time.Sleep(5 * time.Millisecond)
		work(q, Request{Cost: 1, Flow: "quiet"}, 1, 10*time.Millisecond, &quiet)
		for quiet.Load() == 0 {
			time.Sleep(time.Millisecond)
			if noisy.Load() > 2 {
				t.Fatal("still waiting after 2 completions")
			}
		}
		time.Sleep(time.Minute)
	})
}

// TestNoWindUp: who asked for little, or nothing for an hour, has no credit when
// it begins to ask for much, and takes nothing from the other beyond its share.
func TestNoWindUp(t *testing.T) {
	for name, before := range map[string]time.Duration{"light": 20 * time.Second, "idle": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf(3), func(t *testing.T, q *Queue) {
				var ones, twos atomic.Int64 // grants
				ctx, cancel := context.WithCancel(context.Background())
				ask := func(flow string, granted *atomic.Int64) {
					var l Lease
					if q.Acquire(ctx, &l, Request{Cost: 1, Flow: flow}).Outcome == Granted {
						granted.Add(1)
						time.Sleep(service)
						l.Release(l.Gen())
					}
				}
				// First 2 requests/s of the one, and 1/s or none of the other, then 2/s of both.
				for at := time.Duration(0); at < before; at += time.Second {
					go ask("one", &ones)
					if name == "light" {
						go ask("two", &twos)
					}
					time.Sleep(service / 2)
					go ask("one", &ones)
					time.Sleep(service / 2)
				}
				ones.Store(0)
				twos.Store(0)
				for half := 1; half <= 40; half++ {
					go ask("one", &ones)
					go ask("two", &twos)
					time.Sleep(service / 2)
					// 1.5/s each from the first seconds on
					a, b := ones.Load(), twos.Load()
					want := 0.75 * float64(half)
					if slack := 2.5; float64(a) < want-slack || float64(b) < want-slack {
						t.Fatalf("after %d half seconds: %d and %d grants, want %.1f each", half, a, b, want)
					}
				}
				cancel()
				time.Sleep(2 * service)
			})
		})
	}
}

// TestTenantFlood: beside a flood of 1000 by one tenant, each of 20 tenants with
// one request waits at most ceil(21/c)+1 service times at capacity c; also when
// the flood has filled the queue.
func TestTenantFlood(t *testing.T) {
	for _, bound := range []int{2000, 128} {
		for _, c := range []int64{1, 4, 8, 16} {
			t.Run(fmt.Sprintf("capacity %d of %d waiters", c, bound), func(t *testing.T) {
				cfg := conf(c)
				cfg.MaxWaiters, cfg.Timeout = bound, 2000*service
				bubble(t, cfg, func(t *testing.T, q *Queue) {
					var flood, finished atomic.Int64
					work(q, Request{Cost: 1, Flow: "flood"}, 1000, service, &flood)
					time.Sleep(service / 2)
					most := time.Duration((21+c-1)/c+1) * service
					for i := range 20 {
						go func() {
							var l Lease
							res := q.Acquire(context.Background(), &l, Request{Cost: 1, Flow: fmt.Sprint(i)})
							if res.Outcome != Granted || res.Waited > most {
								t.Errorf("outcome %d after %v, want a grant within %v", res.Outcome, res.Waited, most)
								return
							}
							time.Sleep(service)
							finished.Add(1)
							l.Release(l.Gen())
						}()
					}
					time.Sleep(2000 * service)
					if n := finished.Load(); n != 20 {
						t.Errorf("%d of 20 tenants were served", n)
					}
				})
			})
		}
	}
}

// TestAgedShare: while a higher class always waits, work that has aged into it
// gets a quarter of the cost, and one grant more at most: it is neither starved
// nor does it take over. Without aging it gets nothing.
func TestAgedShare(t *testing.T) {
	for _, test := range []struct {
		name      string
		high, low Request // of costs that run alone
		step      time.Duration
	}{
		{"bulk below interactive", Request{Class: 0, Cost: 1}, Request{Class: 2, Cost: 1}, 5 * time.Second},
		{"default below interactive", Request{Class: 0, Cost: 2}, Request{Class: 1, Cost: 3}, 5 * time.Second},
		{"bulk below default", Request{Class: 1, Cost: 5}, Request{Class: 2, Cost: 4}, 5 * time.Second},
		{"no aging", Request{Class: 0, Cost: 1}, Request{Class: 2, Cost: 1}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := conf(max(test.high.Cost, test.low.Cost))
			c.AgingStep, c.Timeout = test.step, time.Hour
			e := newEngine(New(c))
			var cost [Classes]int64
			var running *waiter
			e.onGrant = func(w *waiter) { running = w }
			e.enter(test.high)
			aged := int64(test.low.Class-test.high.Class) * int64(test.step)
			for range 1000 {
				for _, r := range []Request{test.high, test.low} {
					for e.q.classes[r.Class].n < 3 {
						e.enter(r)
					}
				}
				e.now += int64(service)
				e.release(int(running.class), running.charge)
				cost[running.class] += running.charge
				low, all := cost[test.low.Class], cost[test.low.Class]+cost[test.high.Class]
				if low > all/4+test.low.Cost || e.now <= aged && low > 0 {
					t.Fatalf("the lower class has %d of %d at %d s", low, all, e.now/int64(service))
				}
			}
			low, all := cost[test.low.Class], cost[test.low.Class]+cost[test.high.Class]
			t.Logf("the lower class has %d of %d", low, all)
			// A grant of the higher class may pay off more than is owed; the rest is lost.
			if least := all*test.low.Cost/(4*test.low.Cost+test.high.Cost-1) - 2*test.low.Cost; test.step > 0 && low < least-aged/int64(service)*test.high.Cost {
				t.Errorf("the lower class has %d of %d, want %d", low, all, least)
			}
			if test.step == 0 && low > 0 {
				t.Errorf("without aging the lower class has %d", low)
			}
		})
	}
}

// TestAgedIsServed: one low waiter under an endless stream of high ones is served
// when it has aged, within a service time. Its class stays what it was.
func TestAgedIsServed(t *testing.T) {
	const step, hold = 100 * time.Millisecond, 10 * time.Millisecond
	for _, class := range []int{1, 2} {
		c := conf(1)
		c.AgingStep = step
		bubble(t, c, func(t *testing.T, q *Queue) {
			ctx, cancel := context.WithCancel(context.Background())
			for range 3 {
				go func() {
					for ctx.Err() == nil {
						var l Lease
						if q.Acquire(ctx, &l, Request{Cost: 1}).Outcome == Granted {
							time.Sleep(hold)
							l.Release(l.Gen())
						}
					}
				}()
			}
			synctest.Wait()
			low := ask(q, Request{Class: class, Cost: 1})
			time.Sleep(time.Duration(class)*step - 1)
			low.wants(t, Queued)
			time.Sleep(hold + 1)
			synctest.Wait()
			low.wants(t, Granted)
			if s := q.Snapshot(); s.ClassLeases[class] != 1 || s.Outcomes[class][Granted] != 1 {
				t.Errorf("class %d: %+v", class, s)
			}
			low.release()
			cancel()
			time.Sleep(time.Second)
		})
	}
}

// TestAgingOff is strict priority, then first come first served.
func TestAgingOff(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		var order [Classes][]*call
		for range 5 {
			for class := Classes - 1; class >= 0; class-- {
				time.Sleep(time.Second)
				order[class] = append(order[class], ask(q, Request{Class: class, Cost: 1}))
			}
		}
		order[1][2].leave() // from the middle
		order[1][2].wants(t, Canceled)
		order[1] = slices.Delete(order[1], 2, 3)
		holder.release()
		calls := slices.Concat(order[:]...)
		for i, c := range calls {
			c.wants(t, Granted)
			wantAll(t, Queued, calls[i+1:]...)
			c.release()
		}
	})
}
