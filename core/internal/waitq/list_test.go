package waitq

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestList: a list of waiters that come early and late is what a sorted slice is.
func TestList(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		var l list
		var want []*waiter
		seq := uint64(0)
		for range 500 {
			if n := len(want); n == 0 || r.IntN(9) < 5 {
				seq++
				w := &waiter{seq: seq, arrival: r.Int64N(1+r.Int64N(40)) - 20}
				w.late = l.last != nil && w.arrival < l.last.arrival
				if w.late {
					l.pushLate(w, inSize)
				} else {
					l.push(w, inSize)
				}
				want = append(want, w)
				slices.SortFunc(want, func(a, b *waiter) int {
					return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.seq, b.seq))
				})
			} else {
				i := []int{0, n - 1, r.IntN(n)}[r.IntN(3)]
				w := want[i]
				if w.late {
					l.removeLate(w, inSize)
				} else {
					l.remove(w, inSize)
				}
				if w.links != [kinds]link{} {
					t.Fatal("a waiter that has left holds others")
				}
				want = slices.Delete(want, i, i+1)
			}
			if err := l.check(inSize); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(inOrder(&l, inSize), want) {
				t.Fatal("not the waiters that are in it")
			}
		}
	}
}

// depth is the longest way down a tree.
func depth(w *waiter, k kind) int {
	if w == nil {
		return 0
	}
	return 1 + max(depth(w.links[k].prev, k), depth(w.links[k].next, k))
}

// TestTicketsInAnyOrder: whatever the order in which tickets come back, ways down
// their trees stay short, so that each costs O(log n).
func TestTicketsInAnyOrder(t *testing.T) {
	const n = 100_000
	r := rand.New(rand.NewPCG(1, 1))
	orders := map[string]func(i int64) int64{
		"reverse":    func(i int64) int64 { return -i },
		"as it was":  func(i int64) int64 { return i - 2*n },
		"zigzag":     func(i int64) int64 { return -n + i*(1-i%2*2)/2 },
		"all at one": func(int64) int64 { return -5 },
		"random":     func(int64) int64 { return -r.Int64N(n) },
	}
	for name, arrival := range orders {
		t.Run(name, func(t *testing.T) {
			e := newEngine(New(conf(1)))
			e.enter(Request{Cost: 1})
			e.now = 10
			for _, flow := range []string{"a", "b"} {
				e.enter(Request{Cost: 1, Flow: flow}) // all that follows is late
			}
			for i := range int64(n) {
				w := e.q.getWaiter(Request{Cost: 1, Flow: string(rune('a' + i%2))})
				w.deadline, w.arrival = never, arrival(i)
				e.locked(func() { e.q.enterLocked(w, string(rune('a'+i%2)), e.now) })
				if !w.late {
					t.Fatal("not late")
				}
			}
			if err := checkStructure(e.q); err != nil {
				t.Fatal(err)
			}
			// A random search tree of n is some 4.3 ln n deep, 50 here (Devroye 1986).
			if d := depth(e.q.all.late, inAll); d > 80 {
				t.Errorf("%d waiters stand %d deep", n, d)
			}
			for e.leases > 0 {
				e.release(0, 1)
			}
			wantIdle(t, e.q)
		})
	}
}
