package waitq

import "time"

const (
	sliceLength = int64(15 * time.Second)
	sliceCount  = 20
)

// window is the waits of the last 5 minutes, to a slice of 15 seconds. Queue.mu
// guards it.
type window struct {
	slices [sliceCount]slice // slice number n lies at n modulo sliceCount
	newest int64             // the number of the newest
	sum    *waitCounts       // over all slices; nil until somebody has waited
	ages   *ages             // of those who wait; nil until somebody does
}

// slice is what happened in 15 seconds.
type slice struct {
	zeros    int64 // waits of 0
	timedOut int64
	few      []int64     // the first waits above 0
	waits    *waitCounts // and those after them; nil until there is one
}

// few is how many waits are kept as they are.
const few = 32

// windowLocked is the window, with the slice of now as its newest.
func (q *Queue) windowLocked(now int64) *window {
	if q.window == nil {
		q.window = &window{newest: now / sliceLength}
	}
	q.window.roll(now / sliceLength)
	return q.window
}

// rollLocked counts the grants that did not come to the lock as waits of 0 in the
// slice of now.
func (q *Queue) rollLocked(now int64) {
	n := int64(0)
	for _, m := range q.immediateLocked() {
		n += m
	}
	if n > q.seen {
		w := q.windowLocked(now)
		w.at().zeros += n - q.seen
		q.seen = n
	} else if q.window != nil {
		q.window.roll(now / sliceLength)
	}
}

func (w *window) at() *slice { return &w.slices[w.newest%sliceCount] }

// roll makes the slice with that number the newest. One that has passed already
// stays what it is.
func (w *window) roll(number int64) {
	if number-w.newest > sliceCount {
		w.newest = number - sliceCount // nothing is left of those before
	}
	for w.newest < number {
		w.newest++
		s := w.at()
		s.zeros, s.timedOut, s.few = 0, 0, s.few[:0]
		if s.waits == nil {
			continue
		}
		for i, n := range s.waits {
			w.sum[i] -= n
		}
		*s.waits = waitCounts{}
	}
}

// add counts a wait above 0 in the newest slice.
func (w *window) add(waited int64) {
	s := w.at()
	if s.few == nil {
		s.few = make([]int64, 0, few)
	}
	if len(s.few) < few {
		s.few = append(s.few, waited)
		return
	}
	if s.waits == nil {
		s.waits = new(waitCounts)
		if w.sum == nil {
			w.sum = new(waitCounts)
		}
	}
	b := waitBucket(waited)
	s.waits[b]++
	w.sum[b]++
}

// appendTo appends the waits that are kept as they are to a sample, and sums up who
// timed out.
func (w *window) appendTo(s sample) (all sample, timedOut int64) {
	zeros := int64(0)
	for i := range w.slices {
		zeros += w.slices[i].zeros
		timedOut += w.slices[i].timedOut
		for _, d := range w.slices[i].few {
			s = append(s, value{d, 1})
		}
	}
	return append(s, value{0, zeros}), timedOut
}

// leftLocked keeps the statistics of a request that has its outcome: waited is how
// long it stood in the queue, if it did.
func (q *Queue) leftLocked(class int, o Outcome, stood bool, waited, now int64) {
	ended := o == Granted || o == TimedOut
	if !stood && !ended {
		return
	}
	w := q.windowLocked(now)
	s := w.at()
	if o == TimedOut {
		s.timedOut++
	}
	if waited == 0 {
		s.zeros++
	} else {
		w.add(waited)
	}
	if ended {
		t := q.stats.counts.totals
		if t == nil {
			t = new([Classes]WaitTotal)
			q.stats.counts.totals = t
		}
		t[class].add(waited)
	}
}

const ageSlots = 1024

// ages counts those who wait by when they entered, in slots of one width. A slot
// that is more than ageSlots old is in older.
type ages struct {
	width  int64
	newest int64 // the number of the newest slot
	slots  [ageSlots]uint32
	older  int64 // those in older slots
	sum    int64 // of the numbers of their slots
	n      int64
}

// ageWidth is the width of a slot at a timeout: fine enough to tell 1024 ages.
func ageWidth(timeout int64) int64 {
	return min(max(timeout/ageSlots, int64(time.Millisecond)), int64(time.Second))
}

// agesLocked is the ages of those who wait.
func (q *Queue) agesLocked(now int64) *ages {
	w := q.windowLocked(now)
	if w.ages == nil {
		w.ages = &ages{width: ageWidth(q.timeout)}
	}
	return w.ages
}

// enter counts in one that entered at a time, the newest or one before, and leave
// counts it out.
func (a *ages) enter(at int64) {
	number := at / a.width
	if a.n == 0 {
		a.newest = number
	}
	for i := 0; a.newest < number && i < ageSlots; i++ {
		a.newest++
		a.retire()
	}
	a.newest = max(a.newest, number)
	a.n++
	if number <= a.newest-ageSlots {
		a.older++
		a.sum += number
		return
	}
	a.slots[number%ageSlots]++
}

// retire gives what is in the place of the newest slot to the older ones.
func (a *ages) retire() {
	s := &a.slots[a.newest%ageSlots]
	a.older += int64(*s)
	a.sum += int64(*s) * (a.newest - ageSlots)
	*s = 0
}

func (a *ages) leave(at int64) {
	number := at / a.width
	a.n--
	if number <= a.newest-ageSlots {
		a.older--
		a.sum -= number
		return
	}
	a.slots[number%ageSlots]--
}

// oldest is the end of the oldest slot that has anybody, or of the mean of the older ones.
func (a *ages) oldest() int64 {
	number := a.newest
	for i := range int64(min(ageSlots, a.newest+1)) {
		if a.slots[(a.newest-i)%ageSlots] > 0 {
			number = a.newest - i
		}
	}
	if a.older > 0 {
		number = a.sum / a.older
	}
	return (number+1)*a.width - 1
}

// appendTo appends the ages to a sample: of those in a slot the middle of it, of
// the older ones their mean.
func (a *ages) appendTo(s sample, now int64) sample {
	if a.n == 0 {
		return s
	}
	for i := range int64(ageSlots) {
		number := a.newest - i
		if number < 0 {
			break
		}
		if n := a.slots[number%ageSlots]; n > 0 {
			from := number * a.width
			s = append(s, value{max(now-(from+min(from+a.width, now))/2, 0), int64(n)})
		}
	}
	if a.older > 0 {
		s = append(s, value{max(now-a.sum/a.older*a.width-a.width/2, 0), a.older})
	}
	return s
}

// setWidthLocked counts the ages anew when the timeout, and so their width, has changed.
func (q *Queue) setWidthLocked() {
	if q.window == nil || q.window.ages == nil || q.window.ages.width == ageWidth(q.timeout) {
		return
	}
	*q.window.ages = ages{width: ageWidth(q.timeout)}
	for _, w := range q.all.all(inAll) {
		q.window.ages.enter(w.left)
	}
}
