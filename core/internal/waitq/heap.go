package waitq

import "math/bits"

// flowHeap is a 4-ary heap of flows by finish tag, the older first waiter in a
// tie. Keys lie in the heap, and the places of flows in a table of their own, by
// number, so that moving a flow touches no flow: most are in no cache.
type flowHeap struct {
	slots []slot
	flows []*flow // by number
	at    []int32 // by number: the place in slots
	free  []int32 // numbers of no flow
}

type slot struct {
	finish uint64
	age    uint64 // of the first waiter: see ageKey
	seq    uint64
	number int32
}

func (f *flow) key() slot { return slot{f.finish, ageKey(f.head.arrival), f.head.seq, f.number} }

// ageKey puts arrivals, which may be negative, in the order of unsigned numbers.
func ageKey(arrival int64) uint64 { return uint64(arrival) ^ 1<<63 }

func (h *flowHeap) len() int { return len(h.slots) }

// first is the flow with the smallest key. There must be one.
func (h *flowHeap) first() *flow { return h.flows[h.slots[0].number] }

func less(a, b slot) bool {
	if d := int64(a.finish - b.finish); d != 0 {
		return d < 0 // tags wrap: their distance is what counts
	}
	return a.age < b.age || a.age == b.age && a.seq < b.seq
}

func (h *flowHeap) set(i int, s slot) {
	h.slots[i] = s
	h.at[s.number] = int32(i)
}

func (h *flowHeap) push(f *flow) {
	if n := len(h.free); n > 0 {
		f.number, h.free = h.free[n-1], h.free[:n-1]
		h.flows[f.number] = f
	} else {
		f.number = int32(len(h.flows))
		h.flows, h.at = append(h.flows, f), append(h.at, 0)
	}
	h.slots = append(h.slots, slot{})
	h.up(len(h.slots)-1, f.key())
}

// fix restores the order after f has changed its tag or its first waiter.
func (h *flowHeap) fix(f *flow) {
	if len(h.slots) == 1 {
		h.slots[0] = f.key()
		return
	}
	h.place(int(h.at[f.number]), f.key())
}

func (h *flowHeap) remove(f *flow) {
	i, last := int(h.at[f.number]), len(h.slots)-1
	h.flows[f.number], h.free = nil, append(h.free, f.number)
	s := h.slots[last]
	h.slots = h.slots[:last]
	if i < last {
		h.place(i, s)
	}
}

func (h *flowHeap) place(i int, s slot) {
	if i > 0 && less(s, h.slots[(i-1)/4]) {
		h.up(i, s)
	} else {
		h.down(i, s)
	}
}

func (h *flowHeap) up(i int, s slot) {
	for i > 0 {
		p := (i - 1) / 4
		if !less(s, h.slots[p]) {
			break
		}
		h.set(i, h.slots[p])
		i = p
	}
	h.set(i, s)
}

// down moves s from i to its place.
func (h *flowHeap) down(i int, s slot) {
	base := s.finish - 1<<62 // all tags lie within 2^62 of s: above it, none wraps
	for first := 4*i + 1; first < len(h.slots); first = 4*i + 1 {
		m := h.least(first, base)
		if !less(h.slots[m], s) {
			break
		}
		h.set(i, h.slots[m])
		i = m
	}
	h.set(i, s)
}

// least is the smallest of the up to four slots from first on. Among four it takes
// no branch: which one it is cannot be predicted, and guessing wrong at every level
// would cost more than all the rest.
func (h *flowHeap) least(first int, base uint64) int {
	if first+4 <= len(h.slots) {
		c := (*[4]slot)(h.slots[first:])
		l, r := before(&c[1], &c[0], base), 2+before(&c[3], &c[2], base)
		return first + l + (r-l)*before(&c[r], &c[l], base)
	}
	m := first
	for c := first + 1; c < len(h.slots); c++ {
		if less(h.slots[c], h.slots[m]) {
			m = c
		}
	}
	return m
}

// before is less as 1 or 0.
func before(a, b *slot, base uint64) int {
	_, borrow := bits.Sub64(a.seq, b.seq, 0)
	_, borrow = bits.Sub64(a.age, b.age, borrow)
	_, borrow = bits.Sub64(a.finish-base, b.finish-base, borrow)
	return int(borrow)
}

// queueHeap is a binary heap of flows, the one with the most queued cost per
// weight first, the older in a tie. An empty one that is kept is not nil.
type queueHeap []*flow

func (h queueHeap) less(a, b *flow) bool {
	switch more(a.queued, a.weight, b.queued, b.weight) {
	case 1:
		return true
	case 0:
		return a.id < b.id
	}
	return false
}

// more compares a/aw with b/bw exactly: 1, 0 or -1.
func more(a, aw, b, bw int64) int {
	ah, al := bits.Mul64(uint64(a), uint64(bw))
	bh, bl := bits.Mul64(uint64(b), uint64(aw))
	switch {
	case ah > bh || ah == bh && al > bl:
		return 1
	case ah == bh && al == bl:
		return 0
	}
	return -1
}

func (h *queueHeap) push(f *flow) {
	*h = append(*h, f)
	f.byAt = len(*h) - 1
	h.fix(f.byAt)
}

func (h *queueHeap) remove(i int) {
	last := len(*h) - 1
	f := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		(*h)[i], f.byAt = f, i
		h.fix(i)
	}
}

func (h queueHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].byAt, h[j].byAt = i, j
}

func (h queueHeap) fix(i int) {
	for ; i > 0 && h.less(h[i], h[(i-1)/2]); i = (i - 1) / 2 {
		h.swap(i, (i-1)/2)
	}
	for {
		m := 2*i + 1
		if m >= len(h) {
			return
		}
		if m+1 < len(h) && h.less(h[m+1], h[m]) {
			m++
		}
		if !h.less(h[m], h[i]) {
			return
		}
		h.swap(i, m)
		i = m
	}
}
