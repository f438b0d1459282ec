package inflight

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

const (
	// answerSlice and answerSlices make the minute over which answers are judged.
	answerSlice  = 10 * time.Second
	answerSlices = 6
	// slowTimes is how many times the usual first-byte time is a rise of it.
	slowTimes = 3
	// usualAfter is how many answers make a first-byte time usual.
	usualAfter = 16
	// newUsual is how long first-byte times stay risen before they are the usual ones.
	newUsual = time.Hour
)

// answers counts how a back end answered a lane in the last minute: an answer is
// bad if it was 429 or 5xx, an error (the caller's own leaving excepted), or took
// slowTimes the usual time to its first byte; a retry counts as a bad one. Most
// lanes are asked about rarely, so what is counted stands behind a pointer.
type answers struct {
	mu  sync.Mutex
	win *answerWindow
}

type answerWindow struct {
	epoch  time.Time // slice 0 begins here; what was set on the wall clock since is nothing to it
	at     int64     // number of the present slice
	slices [answerSlices]struct{ all, badFree int64 }
	n      int64     // first-byte times, up to usualAfter
	usual  float64   // their average, in seconds
	risen  time.Time // since when all have risen; zero = the last one had not
}

// observe counts an answer; free says that a slot was free for a call of its class.
func (a *answers) observe(now time.Time, s gate.Sample, free bool) {
	if s.Err != nil && errors.Is(s.Err, context.Canceled) {
		return // the caller left: that says nothing of the back end
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.windowLocked(now)
	bad := s.Err != nil || s.Status == 429 || s.Status >= 500
	if !bad && s.FirstByte > 0 {
		bad = w.rises(now, s.FirstByte.Seconds())
	}
	w.count(bad && free)
}

// note counts a retry.
func (a *answers) note(now time.Time, bad, free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.windowLocked(now).count(bad && free)
}

func (w *answerWindow) count(badFree bool) {
	s := &w.slices[w.at%answerSlices]
	s.all++
	if badFree {
		s.badFree++
	}
}

// rises judges a first-byte time by the usual one and then, unless it has risen,
// makes it part of that. So the usual does not follow an incident, but after an hour
// without one good answer it is found anew.
func (w *answerWindow) rises(now time.Time, t float64) bool {
	switch {
	case w.n < usualAfter:
		w.n++
		w.usual += (t - w.usual) / float64(w.n)
	case t <= slowTimes*w.usual:
		w.usual += (t - w.usual) / 64
	case w.risen.IsZero():
		w.risen = now
		return true
	case now.Sub(w.risen) < newUsual:
		return true
	default:
		w.n, w.usual = 1, t
	}
	w.risen = time.Time{}
	return false
}

func (a *answers) windowLocked(now time.Time) *answerWindow {
	if a.win == nil {
		a.win = &answerWindow{epoch: now}
	}
	w, at := a.win, int64(now.Sub(a.win.epoch)/answerSlice)
	for i := max(w.at+1, at-answerSlices+1); i <= at; i++ {
		w.slices[i%answerSlices] = struct{ all, badFree int64 }{}
	}
	w.at = max(w.at, at)
	return w
}

// lastMinute is how many answers and retries there were, and how many of them were
// bad while a slot was free.
func (a *answers) lastMinute(now time.Time) (all, badFree int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.win == nil {
		return 0, 0
	}
	for _, s := range a.windowLocked(now).slices {
		all += s.all
		badFree += s.badFree
	}
	return all, badFree
}

func (a *answers) trim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.win = nil
}
