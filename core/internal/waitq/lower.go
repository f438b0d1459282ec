package waitq

// Leases of classes 1 and 2 are counted in one word, so that one add takes a
// place in both counts that bound it: that of its class and that of both. Each
// count has 32 bits: at most 2^22 leases are out, and a few acquires that fail.

// place is one lease of a class above 0 in the word.
func place(class int) uint64 { return 1 << shift(class) }

func shift(class int) uint { return uint(class-1) * 32 & 63 }

// lowerLeases is how many leases of a class above 0 are out.
func lowerLeases(word uint64, class int) int64 { return int64(uint32(word >> shift(class))) }

func allLower(word uint64) int64 { return int64(uint32(word)) + int64(word>>32) }

// takeClass counts a lease in its class, unless the class is at its limit or the
// rest is reserved for class 0.
func (q *Queue) takeClass(class int) bool {
	if class == 0 || q.within(q.lower.Add(place(class)), class) {
		return true
	}
	q.leaveClass(class)
	return false
}

// within reports whether the leases in the word keep to the bounds of a class.
func (q *Queue) within(word uint64, class int) bool {
	return lowerLeases(word, class) <= q.classCap[class-1].Load() && allLower(word) <= q.lowerCap.Load()
}

// leaveClass takes back what takeClass counted.
func (q *Queue) leaveClass(class int) {
	if class > 0 {
		q.lower.Add(-place(class))
	}
}

// eligible reports whether takeClass would count one more lease.
func (q *Queue) eligible(class int) bool {
	return class == 0 || q.within(q.lower.Load()+place(class), class)
}

// reservedLocked is the reserve in force.
func (q *Queue) reservedLocked() int64 { return min(q.reserve, q.limit-1) }

// boundLowerLocked brings the bound of the lower classes into line with the limit
// and the reserve.
func (q *Queue) boundLowerLocked() {
	n := int64(Unlimited)
	if r := q.reservedLocked(); r > 0 {
		n = q.limit - r
	}
	q.lowerCap.Store(n)
}

// Room reports whether a request of cost 1 would fit now by the limit, its class
// limit and the reserve, whoever waits and whether or not the queue is paused or
// closed. It takes no lock and may be a moment old; while acquires fail it may be
// false though there is room.
func (q *Queue) Room(class int) bool {
	free := q.state.Load() >> countBits
	if free < -bias/2 {
		free += bias
	}
	return free > 0 && q.eligible(class)
}
