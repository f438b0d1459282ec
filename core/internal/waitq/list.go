package waitq

// kind says which of the lists that a waiter stands in is meant.
type kind uint8

const (
	inFlow kind = iota
	inSize      // the size bucket of its class
	inAll       // the queue
	kinds

	woken = inSize // who has its outcome is in no list: this link is free
)

// link ties a waiter to others of a list: to its neighbours, or, if it is late, to
// its children.
type link struct{ prev, next *waiter }

// list is waiters by arrival, those of equal arrival as they came. Whoever comes in
// that order, as most do, stands in a chain from first to last. A ticket that is
// older than the last of the queue's chain is late, and stands in a treap: a tree
// by arrival that a hash of each waiter's number keeps in balance, so that tickets
// cost O(log n) in whatever order they come.
type list struct {
	first, last *waiter
	late        *waiter // the root
}

// before reports whether w goes before x in every list that has both.
func (w *waiter) before(x *waiter) bool {
	return w.arrival < x.arrival || w.arrival == x.arrival && w.seq < x.seq
}

// push puts w, which is not late, at the end of the chain. pushLate is for those
// who are. (Each is called for w.late, once for all of w's lists, so that the calls
// for the chain are inlined.)
func (l *list) push(w *waiter, k kind) {
	last := l.last
	l.last = w
	if last == nil {
		l.first = w
	} else {
		w.links[k].prev, last.links[k].next = last, w
	}
}

// remove takes w, which is not late, out of the chain.
func (l *list) remove(w *waiter, k kind) {
	prev, next := w.links[k].prev, w.links[k].next
	w.links[k] = link{}
	if prev == nil {
		l.first = next
	} else {
		prev.links[k].next = next
	}
	if next == nil {
		l.last = prev
	} else {
		next.links[k].prev = prev
	}
}

func (l *list) empty() bool { return l.first == nil && l.late == nil }

// oldest is the waiter that arrived first, nil in an empty list.
func (l *list) oldest(k kind) *waiter {
	if l.late == nil {
		return l.first
	}
	return l.oldestOf(k)
}

func (l *list) oldestOf(k kind) *waiter {
	w := l.late
	for w.links[k].prev != nil {
		w = w.links[k].prev
	}
	if l.first != nil && l.first.before(w) {
		return l.first
	}
	return w
}

// newest is the waiter that arrived last, nil in an empty list.
func (l *list) newest(k kind) *waiter {
	if l.late == nil {
		return l.last
	}
	return l.newestOf(k)
}

func (l *list) newestOf(k kind) *waiter {
	w := l.late
	for w.links[k].next != nil {
		w = w.links[k].next
	}
	if l.last != nil && w.before(l.last) {
		return l.last
	}
	return w
}

// height is a waiter's place in every treap, its children are lower: splitmix64's
// mix of its number (Steele, Lea and Flood, OOPSLA 2014).
func (w *waiter) height() uint64 {
	h := w.seq * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (l *list) pushLate(w *waiter, k kind) {
	at, h := &l.late, w.height()
	for *at != nil && (*at).height() > h {
		at = (*at).side(w, k)
	}
	// What is below goes to the two sides of w.
	below, left, right := *at, &w.links[k].prev, &w.links[k].next
	for below != nil {
		if below.before(w) {
			*left, left = below, &below.links[k].next
			below = *left
		} else {
			*right, right = below, &below.links[k].prev
			below = *right
		}
	}
	*left, *right, *at = nil, nil, w
}

// side is where w stands below x.
func (x *waiter) side(w *waiter, k kind) **waiter {
	if w.before(x) {
		return &x.links[k].prev
	}
	return &x.links[k].next
}

func (l *list) removeLate(w *waiter, k kind) {
	at := &l.late
	for *at != w {
		at = (*at).side(w, k)
	}
	left, right := w.links[k].prev, w.links[k].next
	for left != nil && right != nil {
		if left.height() > right.height() {
			*at, at = left, &left.links[k].next
			left = *at
		} else {
			*at, at = right, &right.links[k].prev
			right = *at
		}
	}
	if left == nil {
		left = right
	}
	*at = left
	w.links[k] = link{}
}

// all is every waiter: the chain, then the late ones in order.
func (l *list) all(k kind) []*waiter {
	var ws, above []*waiter
	for w := l.first; w != nil; w = w.links[k].next {
		ws = append(ws, w)
	}
	for w := l.late; w != nil || len(above) > 0; {
		for ; w != nil; w = w.links[k].prev {
			above = append(above, w)
		}
		w, above = above[len(above)-1], above[:len(above)-1]
		ws = append(ws, w)
		w = w.links[k].next
	}
	return ws
}
