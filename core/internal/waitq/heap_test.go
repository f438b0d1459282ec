package waitq

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// heaps are a flowHeap and a queueHeap with the same flows.
type heaps struct {
	flows   []*flow
	byTag   flowHeap
	byQueue queueHeap
}

// check compares the tops with a sorted list, and looks at every place.
func (h *heaps) check(t *testing.T) {
	t.Helper()
	for i, s := range h.byTag.slots {
		if f := h.byTag.flows[s.number]; f.number != s.number || int(h.byTag.at[s.number]) != i || i > 0 && less(s, h.byTag.slots[(i-1)/4]) {
			t.Fatalf("heap of tags at %d of %d", i, h.byTag.len())
		}
	}
	for i, f := range h.byQueue {
		if f.byAt != i || i > 0 && h.byQueue.less(f, h.byQueue[(i-1)/2]) {
			t.Fatalf("heap of queues at %d of %d", i, len(h.byQueue))
		}
	}
	if h.byTag.len() != len(h.flows) || len(h.byQueue) != len(h.flows) {
		t.Fatalf("%d and %d of %d flows", h.byTag.len(), len(h.byQueue), len(h.flows))
	}
	if len(h.flows) == 0 {
		return
	}
	least := slices.MinFunc(h.flows, func(a, b *flow) int {
		return cmp.Or(cmp.Compare(int64(a.finish-b.finish), 0), cmp.Compare(a.head.arrival, b.head.arrival), cmp.Compare(a.head.seq, b.head.seq))
	})
	most := slices.MaxFunc(h.flows, func(a, b *flow) int {
		return cmp.Or(cmp.Compare(a.queued*b.weight, b.queued*a.weight), cmp.Compare(b.id, a.id))
	})
	if h.byTag.first() != least || h.byQueue[0] != most {
		t.Fatalf("the tops are flows %d and %d, not %d and %d", h.byTag.first().id, h.byQueue[0].id, least.id, most.id)
	}
}

// TestHeaps pushes, changes and removes at random, with many ties.
func TestHeaps(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 6))
		base := []uint64{0, ^uint64(0) - 20}[seed%2] // tags wrap
		var h heaps
		change := func(f *flow) {
			f.finish, f.queued, f.weight = base+r.Uint64N(40), r.Int64N(30), 1+r.Int64N(4)
		}
		for i := range uint64(600) {
			n := len(h.flows)
			switch {
			case n == 0 || r.IntN(5) < 2:
				f := &flow{id: i, head: &waiter{seq: i, arrival: r.Int64N(3) - 1}}
				change(f)
				h.flows = append(h.flows, f)
				h.byTag.push(f)
				h.byQueue.push(f)
			case r.IntN(2) == 0:
				f := h.flows[r.IntN(n)]
				change(f)
				h.byTag.fix(f)
				h.byQueue.fix(f.byAt)
			default:
				f := h.flows[r.IntN(n)]
				h.byTag.remove(f)
				h.byQueue.remove(f.byAt)
				h.flows = slices.DeleteFunc(h.flows, func(x *flow) bool { return x == f })
			}
			h.check(t)
		}
	}
}

// TestMore: the comparison of costs per weight is exact where products overflow.
func TestMore(t *testing.T) {
	const big = 1 << 62
	for _, test := range []struct {
		a, aw, b, bw int64
		want         int
	}{
		{1, 1, 1, 1, 0}, {2, 1, 1, 1, 1}, {1, 2, 1, 1, -1}, {2, 2, 1, 1, 0}, {0, 7, 0, 3, 0},
		{big, 1000, big - 1, 1000, 1}, {big - 1, 999, big, 999, -1}, {big, 1000, big, 1000, 0}, {big, 999, big, 1000, 1},
	} {
		if got := more(test.a, test.aw, test.b, test.bw); got != test.want {
			t.Errorf("%d/%d and %d/%d: %d, want %d", test.a, test.aw, test.b, test.bw, got, test.want)
		}
	}
}
