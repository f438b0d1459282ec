package lanes

import (
	"math"
	"time"

	"github.com/headgate-go/headgate/core/pressure"
)

// What moves the limit, and by how much. The package comment has the rules.
const (
	growStep     = 1
	cutPart      = 0.8  // high pressure, a high gradient, errors under AIMD
	criticalPart = 0.5  // critical pressure
	busyPart     = 0.7  // utilisation from which the limit binds
	quietPart    = 0.3  // utilisation up to which it does not matter
	steep        = 0.25 // gradient from which latency is high
	dipPart      = 0.7  // what a dip leaves of the limit
)

// lawConfig is what a law goes by.
type lawConfig struct {
	algorithm          Algorithm
	least, start, most int64 // of the limit
	window             time.Duration
}

// law is how the limit moves: what happens is told to it, and at the end of each window
// it says what the limit is. It has no clock, lock or goroutine; time is nanoseconds from
// anywhere and never goes back.
type law struct {
	lawConfig
	limit int64 // what is learned
	trend trend
	seen  window
	press pressure.Severity // the worst of the window
	empty bool              // nothing was in flight when the last window closed

	halvedAt int64 // when critical pressure had its last cut
	growFrom int64 // when it may grow again

	// A cut shows when what was there before it has ended. (What began after it and has
	// ended already would not do: it is the quickest.)
	quietTo  int64   // samples until then are of no use
	settleBy int64   // until then samples are awaited; 0 = no cut is unsettled
	fallTo   float64 // a latency below that fell with the limit

	// A dip is a cut that the law makes by itself, to see whether latency falls with the
	// limit. It goes back up when latency does not.
	dipping bool
	back    int64 // the limit to go back to
	dipAt   int64 // when the next one is due, 0 = it is not known yet
	every   int64 // windows between dips, before jitter
	jitter  func() float64
}

// window is what happened since the last one closed.
type window struct {
	completed, failed int
	use               float64 // sum of the utilisations seen
	looks             int
	waited            bool // somebody was waiting
}

// utilisation is the mean of what was seen; 1 when there was a queue, whatever was free.
func (w *window) utilisation() float64 {
	switch {
	case w.waited:
		return 1
	case w.looks == 0:
		return 0
	}
	return w.use / float64(w.looks)
}

// newLaw is a law at the start. jitter is random numbers from 0 to 1.
func newLaw(c lawConfig, jitter func() float64) *law {
	return &law{lawConfig: c, limit: c.start, every: firstDips, jitter: jitter, halvedAt: math.MinInt64 / 2}
}

// configure changes what the law goes by. What it has learned it keeps, within the new
// bounds; a fixed limit is the start. Another algorithm keeps the limit alone: what the
// one before made of latency, and waits for, would hold it up for ever.
func (l *law) configure(c lawConfig) {
	if c.algorithm != l.algorithm {
		if l.dipping {
			l.limit = l.back
		}
		l.dipping, l.settleBy, l.quietTo, l.growFrom, l.dipAt, l.every = false, 0, 0, 0, 0, firstDips
		l.trend = trend{}
		l.begin()
	}
	l.lawConfig = c
	if c.algorithm == Fixed {
		l.limit = c.start
	}
	l.limit = l.clamp(l.limit)
	l.back = l.clamp(l.back)
}

// begin forgets what has been seen of the window.
func (l *law) begin() { l.seen, l.press = window{}, pressure.Normal }

func (l *law) clamp(n int64) int64 { return min(max(n, l.least), l.most) }

// took tells that a request that began at now-latency ended, or was answered, well.
func (l *law) took(from source, latency time.Duration, now int64) {
	l.seen.completed++
	if l.algorithm != Gradient || latency <= 0 {
		return
	}
	if now >= l.quietTo {
		l.trend.add(from, latency)
	}
}

// failedOnce tells of an error of the back end.
func (l *law) failedOnce() { l.seen.failed++ }

// look tells what is in use at some moment, and whether anybody waits.
func (l *law) look(inUse int64, waiting bool) {
	l.seen.use += min(float64(inUse)/float64(l.limit), 1)
	l.seen.looks++
	l.seen.waited = l.seen.waited || waiting
}

// pressed tells how close to its memory limit the process is. Critical pressure halves the
// limit at once, once in the length of a window.
func (l *law) pressed(s pressure.Severity, now int64) {
	l.press = max(l.press, s)
	if s < pressure.Critical || now-l.halvedAt < int64(l.window) || l.algorithm == Fixed {
		return
	}
	l.halvedAt = now
	l.dipping, l.settleBy = false, 0
	if l.limit > l.least {
		l.setLimit(float64(l.limit) * criticalPart)
		l.quietTo = now + int64(l.window)*l.settleWindows()
		l.trend.restart()
	}
}

// close ends a window at now. inUse is what is in use then.
func (l *law) close(now, inUse int64, waiting bool, s pressure.Severity) lastWindow {
	l.look(inUse, waiting)
	l.pressed(s, now)
	if l.algorithm != Fixed {
		l.decide(now, inUse)
	}
	last := lastWindow{l.seen.utilisation(), l.press}
	l.seen, l.press, l.empty = window{}, pressure.Normal, inUse == 0
	return last
}

// lastWindow is what the last window that closed was like.
type lastWindow struct {
	utilisation float64
	severity    pressure.Severity
}

// resting reports whether windows in which nothing happens change nothing.
func (l *law) resting() bool {
	return l.algorithm == Fixed || l.limit >= l.start && l.settleBy == 0 && !l.dipping
}

func (l *law) decide(now, inUse int64) {
	w := &l.seen
	util := w.utilisation()
	idle := l.empty && inUse == 0 && w.completed+w.failed == 0 && util == 0
	moved := l.average(now, inUse, util, idle)
	switch {
	case l.press >= pressure.Critical: // it has had its cut
	case l.press >= pressure.High:
		l.dipping = false
		l.cut(now, cutPart)
	case l.algorithm == AIMD && w.failed > 0 && l.settleBy == 0:
		l.cut(now, cutPart)
	case moved && l.trend.high():
		l.dipping = false
		l.cut(now, cutPart)
	case l.settleBy != 0 || l.dipping || w.failed > 0 || l.trend.high() && !idle:
	case util >= busyPart && w.completed > 0:
		if !l.dip(now) && !l.trend.raised() && now >= l.growFrom {
			// What a step does is seen a latency later. Where that is many windows, one step
			// in each would be far above the capacity before the first is seen.
			l.growFrom = now + int64(l.trend.long*float64(time.Second)/2)
			l.setLimit(float64(l.limit + growStep))
		}
	case util <= quietPart && l.limit < l.start:
		l.setLimit(float64(min(l.limit+growStep, l.start)))
	}
}

// cut leaves a part of the limit, and waits for what that does.
func (l *law) cut(now int64, part float64) {
	if l.limit == l.least {
		return
	}
	l.setLimit(float64(l.limit) * part)
	l.fallTo = l.trend.short * math.Sqrt(part)
	l.quietTo = now + int64(l.window)*l.settleWindows()
	l.settleBy = l.quietTo + int64(l.window)*max(l.settleWindows(), leastPatience)
	if l.algorithm == AIMD { // no latency will tell
		l.settleBy = now + int64(l.window)*aimdSettle
	}
	l.trend.restart()
}

// settleWindows is how many windows pass before a cut shows: twice the usual latency.
func (l *law) settleWindows() int64 {
	usual := 2 * l.trend.long / l.window.Seconds()
	return int64(min(max(math.Ceil(usual), 1), mostSettle))
}

func (l *law) setLimit(n float64) { l.limit = l.clamp(int64(n)) }

// average moves the averages, and reports whether it did.
func (l *law) average(now, inUse int64, util float64, idle bool) bool {
	t := &l.trend
	if idle {
		t.expire()
	} else {
		t.age(l.limit == l.least)
	}
	if l.dipping && now >= l.quietTo && inUse > l.limit {
		// What is in use outlasts a dip, so that this one cannot tell anything.
		l.settleBy = 0
		l.endDip(now, vainDips)
	}
	if !t.ready() {
		if l.settleBy != 0 && now >= l.settleBy { // nothing came that tells what the cut did
			l.settleBy = 0
			l.endDip(now, mostDips)
		}
		return false
	}
	first := t.long == 0
	switch warming := t.move(); {
	case warming:
		l.settleBy = 0
		l.endDip(now, firstDips)
		if first {
			l.quietTo = now + 2*int64(l.window)*l.settleWindows()
		}
	case l.settleBy != 0:
		l.settled(now)
	default:
		t.learn(util < busyPart)
	}
	return true
}

// settled judges a cut by what began after it.
func (l *law) settled(now int64) {
	t := &l.trend
	l.settleBy = 0
	fell := t.short < l.fallTo
	t.measured(fell, l.dipping)
	switch {
	case l.dipping && fell:
		// The latency was of our own making. There may be more of it.
		if l.limit > l.least && !t.high() {
			l.back = l.limit
			l.cut(now, dipPart)
			return
		}
		l.dipping = false
		l.nextDip(now, firstDips)
	case l.dipping:
		l.endDip(now, min(2*l.every, mostDips))
	}
}

// endDip goes back to where the limit was before the dip, if it is in one.
func (l *law) endDip(now, every int64) {
	if l.dipping {
		l.setLimit(float64(l.back))
		l.dipping = false
		l.nextDip(now, every)
	}
}

// dip begins a dip if it is time for one. Under a load that never lets go of the limit,
// nothing else tells the latency that the back end has from the one that the limit makes.
func (l *law) dip(now int64) bool {
	if l.algorithm != Gradient || l.trend.long == 0 || l.limit <= l.least {
		return false
	}
	if l.dipAt == 0 {
		l.nextDip(now, l.every)
	}
	if now < l.dipAt {
		return false
	}
	l.dipping, l.back = true, l.limit
	l.cut(now, dipPart)
	return true
}

// nextDip sets the time of the next dip: in so many windows, half of that more or less, so
// that the replicas of a service do not all dip at once. Where a dip lasts long they are
// as much further apart.
func (l *law) nextDip(now, every int64) {
	l.every = every
	windows := float64(l.every*max(1, l.settleWindows()/4)) * (0.5 + l.jitter())
	l.dipAt = now + int64(windows*float64(l.window))
}
