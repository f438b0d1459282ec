package waitq

// Layouts of the state word; see "State word" in the package comment.
const (
	// MaxUnits bounds the limit of a queue of units, and the leases that it counts.
	// Its counts have room for some 48,000 acquires more that fail just then.
	MaxUnits = 1_000_000

	countBits = 22
	countMask = 1<<countBits - 1
	bias      = 1 << 40

	unitBits  = 20 // of each of the two counts of a queue of units
	unitShift = 2 * unitBits
	unit      = 1 << unitShift
	unitBias  = 1 << 22

	lowerBits = 31 // of each of the two counts in Queue.lower
)

// What TryUnit looks at in Queue.look.
const (
	isSlow    = 1 << 0 // the queue is biased
	isBounded = 1 << 1 // of lowerCap and classCap one is not Unlimited
	isTight   = 1 << 2 // a lower class was at such a bound when the queue was last slow
)

func (q *Queue) lookLocked(flag uint32, on bool) {
	look := q.look.Load() &^ flag
	if on {
		look |= flag
	}
	q.look.Store(look)
}

// What a lease says of itself in one word: what its release adds to the state, from
// bit backAt on, its class, and the flags.
const (
	classMask = 3
	ofUnits   = 1 << 2 // a lease of a queue of units
	inLower   = 1 << 3 // it has a place in Queue.lower
	beside    = 1 << 4 // the state knows nothing of it: booked, or it holds nothing
	long      = 1 << 5 // its release takes the long way
	backAt    = 6
)

// pack makes the word of a lease.
func (q *Queue) pack(class int, charge int64) int64 {
	if q.units {
		return packUnit(class)
	}
	return packCost(class, charge)
}

func packCost(class int, charge int64) int64 {
	held := (charge<<countBits-1)<<backAt | int64(class)
	if class > 0 {
		held |= inLower | long
	}
	return held
}

func packUnit(class int) int64 {
	return (unit-place(class, unitBits))<<backAt | ofUnits | int64(class)
}

// charge and classOf read it.
func charge(held int64) int64 {
	if held&ofUnits != 0 {
		return 1
	}
	return (held>>backAt + 1) >> countBits
}

func classOf(held int64) int { return int(held & classMask) }

// take takes what a lease holds from the state. Its place in Queue.lower is taken
// already.
func (q *Queue) take(held int64) { q.state.Add(-(held >> backAt)) }

// give puts it back and returns the state. Its place in Queue.lower goes back first:
// whoever is then woken by the room finds it.
func (q *Queue) give(held int64) int64 {
	if held&inLower != 0 {
		q.leaveLower(classOf(held))
	}
	return q.state.Add(held >> backAt)
}

// shift is where in the state the room begins.
func (q *Queue) shift() uint {
	if q.units {
		return unitShift
	}
	return countBits
}

// bias is what a slow queue has less room by.
func (q *Queue) bias() int64 {
	if q.units {
		return unitBias
	}
	return bias
}

// freeLocked is the room left; it is negative after a shrink of the limit below
// what is in use, and may read low for a moment while an acquire fails.
func (q *Queue) freeLocked() int64 { return q.freeIn(q.state.Load()) }

func (q *Queue) freeIn(state int64) int64 {
	free := state >> q.shift()
	if q.biased {
		free += q.bias()
	}
	return free
}

// inUseIn is the cost that leases hold. What an acquire that is failing has taken beyond
// the limit is no lease's.
func (q *Queue) inUseIn(state int64) int64 {
	n := max(0, q.limit-q.freeIn(state))
	if q.lenient {
		return n
	}
	return min(n, q.limit+q.over)
}

// leasesIn is how many leases the state tells of, those that are failing included.
func (q *Queue) leasesIn(state int64) int64 {
	if q.units {
		return q.limit - q.freeIn(state)
	}
	return state & countMask
}

// place is one lease of a class in a word that counts those of 1 and 2, so that one
// add takes a place in both counts that bound it: that of its class and that of both.
// It is 0, 1 or 1 << width.
func place(class int, width uint) int64 {
	return int64(1) << (width * uint(class) & 63) >> width
}

// counts splits such a word.
func counts(word int64, width uint) (one, two int64) {
	mask := int64(1)<<width - 1
	return word & mask, word >> width & mask
}

// lowerLeases is how many leases of class 1 and of class 2 are out.
func (q *Queue) lowerLeases() (one, two int64) { return q.lowerIn(q.state.Load()) }

func (q *Queue) lowerIn(state int64) (one, two int64) {
	if q.units {
		return counts(state, unitBits)
	}
	return counts(q.lower.Load(), lowerBits)
}

// takeClass makes sure that one more lease may be out in a class, by the limit of
// that class and by what is reserved for class 0. In a queue of units the lease is
// then counted as it takes its room: the queue must be slow, so that nobody comes
// between. In others it is counted here.
func (q *Queue) takeClass(class int) bool {
	if class == 0 || q.units {
		return q.eligible(class)
	}
	return q.takeLower(class)
}

func (q *Queue) takeLower(class int) bool {
	if one, two := counts(q.lower.Add(place(class, lowerBits)), lowerBits); q.within(class, one, two) {
		return true
	}
	q.leaveLower(class)
	return false
}

// leaveLower takes back what takeLower counted.
func (q *Queue) leaveLower(class int) { q.lower.Add(-place(class, lowerBits)) }

// within reports whether so many leases of class 1 and class 2 keep to the bounds of
// a class above 0.
func (q *Queue) within(class int, one, two int64) bool {
	own := one
	if class > 1 {
		own = two
	}
	return own <= q.classCap[class-1].Load() && one+two <= q.lowerCap.Load()
}

// withinUnits is within for the state of a queue of units.
func (q *Queue) withinUnits(class int, state int64) bool {
	one, two := counts(state, unitBits)
	return q.within(class, one, two)
}

// eligible reports whether one more lease may be out in a class.
func (q *Queue) eligible(class int) bool {
	if class == 0 {
		return true
	}
	one, two := q.lowerLeases()
	if class == 1 {
		one++
	} else {
		two++
	}
	return q.within(class, one, two)
}

// reservedLocked is the reserve in force.
func (q *Queue) reservedLocked() int64 { return min(q.reserve, q.limit-1) }

// boundLowerLocked brings the bound of the lower classes into line with the limit, the
// reserve and the class limits.
func (q *Queue) boundLowerLocked() {
	n := int64(Unlimited)
	if r := q.reservedLocked(); r > 0 {
		n = q.limit - r
	}
	q.lowerCap.Store(n)
	for i := range q.classCap {
		n = min(n, q.classCap[i].Load())
	}
	q.lookLocked(isBounded, n < Unlimited)
}

// Room reports whether a request of cost 1 would fit now by the limit, its class
// limit and the reserve, whoever waits and whether or not the queue is paused or
// closed. It takes no lock and may be a moment old; while acquires fail it may be
// false though there is room.
func (q *Queue) Room(class int) bool {
	free := q.state.Load() >> q.shift()
	if free < -q.bias()/2 {
		free += q.bias()
	}
	return free > 0 && q.eligible(class)
}
