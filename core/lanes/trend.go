package lanes

import (
	"math"
	"time"
)

const (
	shortPart  = 0.5   // of the way that the short average goes each time
	longPart   = 0.1   // and the long one
	raisedPart = 0.05  // and where the gradient is raised, and a dip shows that the limit is not why
	leastPart  = 0.001 // and at the least limit, where it is raised
	certain    = 0.08  // standard error, as a part, with which the averages move
	fewest     = 8     // samples that move the averages at least, and at most
	most       = 256
	slack      = 0.1 // by which latency under load must be below the long average to lower it

	noMore       = 1000 // holds without a first byte between them after which there are none
	warm         = 6    // moves whose latency is taken as it is
	settledAfter = 30   // windows that make a long average one to be trusted
	doubtAfter   = 60   // windows of high latency after which one that is not is given up
	giveUpAfter  = 3600 // and one that is

	firstDips, mostDips = 30, 120 // windows between dips
	vainDips            = 600     // after one that could not drain what was in use
	aimdSettle          = 3       // windows between cuts for errors
	mostSettle          = 600     // windows that a cut may take to show
	leastPatience       = 30      // and that samples are awaited after that, at least
)

// source is where a latency comes from. The two are never mixed.
type source uint8

const (
	held      source = iota // from the grant to the release
	firstByte               // what gate.Observe said
)

func (s source) String() string {
	if s == firstByte {
		return "first_byte"
	}
	return "hold"
}

// trend is the averages of the latency, in seconds.
type trend struct {
	short, long float64 // 0 = not known
	from        source
	logs        float64 // sum of the logarithms of the samples since the last move
	squares     float64 // and of their squares
	spread      float64 // variance of a logarithm
	n           int
	afresh      bool // the next samples replace the short average
	windows     int  // windows that the long average is made of
	steepFor    int  // windows of a high gradient, less those without
	ignored     int  // holds since the last first byte
}

// add adds a sample. Where there are first bytes, holds tell nothing.
func (t *trend) add(from source, latency time.Duration) {
	if from < t.from {
		if t.ignored++; t.ignored < noMore {
			return
		}
	}
	if from != t.from {
		*t = trend{from: from}
	}
	t.ignored = 0
	x := math.Log(latency.Seconds())
	t.logs += x
	t.squares += x * x
	t.n++
}

// expire is called for each idle window: what was slow before is over.
func (t *trend) expire() {
	t.restart()
	t.short = min(t.short, t.long)
}

// restart forgets what is known of the present.
func (t *trend) restart() {
	t.logs, t.squares, t.n, t.afresh = 0, 0, 0, true
}

// ready reports whether there are samples enough to tell noise from a change: the more
// they differ, the more it takes.
func (t *trend) ready() bool {
	if t.n < fewest {
		return false
	}
	doubt := max(t.spread, t.variance()) / float64(t.n) // square of the standard error
	if t.n >= most || doubt <= certain*certain {
		return true
	}
	// A change that is large enough is plain before that.
	change := t.logs/float64(t.n) - math.Log(t.long)
	return t.long > 0 && change >= math.Log(1+steep) && change*change >= 9*doubt
}

func (t *trend) variance() float64 {
	mean := t.logs / float64(t.n)
	return max(t.squares/float64(t.n)-mean*mean, 0)
}

// move moves the short average by the geometric mean of the samples, so that a request
// of minutes does not outweigh a thousand of milliseconds.
// It reports whether that is no measure yet.
func (t *trend) move() (warming bool) {
	t.spread += shortPart * (t.variance() - t.spread)
	mean := math.Exp(t.logs / float64(t.n))
	t.logs, t.squares, t.n = 0, 0, 0
	if t.short == 0 || t.afresh {
		t.short = mean
	} else {
		t.short += shortPart * (mean - t.short)
	}
	t.afresh = false
	if t.windows >= warm {
		return false
	}
	// The very first that are seen to end are the quickest: they only tell for how long to
	// wait for the others. After that, the mean of the moves.
	t.windows++
	t.long += (mean - t.long) / float64(max(1, t.windows-1))
	t.short = t.long
	return true
}

// learn moves the long average after a window. Latency that rises under load may be of
// our own making, so it teaches nothing.
func (t *trend) learn(light bool) {
	if t.high() {
		return
	}
	t.windows++
	if light && !t.raised() || t.short < t.long*(1-slack) {
		t.long += longPart * (t.short - t.long)
	}
}

// measured moves the long average after a cut has shown what it does. Latency that fell
// with the limit may fall further, so it only lowers the average; latency that did not is
// what the back end has.
func (t *trend) measured(fell, dip bool) {
	if t.high() {
		return
	}
	t.windows++
	switch {
	case t.short < t.long, !fell && !t.raised():
		t.long += shortPart * (t.short - t.long)
	case !fell && dip:
		t.long += raisedPart * (t.short - t.long)
	}
}

// age is called for each window that is not idle. After so many of high latency it is
// the long average that is wrong: sooner where little made it. At the least limit, where
// a cut can show nothing any more, latency that only keeps the limit from growing becomes
// the usual one slowly.
func (t *trend) age(atLeast bool) {
	if !t.high() {
		if atLeast && t.raised() {
			t.long += leastPart * (t.short - t.long)
		}
		t.steepFor = max(t.steepFor-1, 0)
		return
	}
	t.steepFor++
	most := giveUpAfter
	if t.windows < settledAfter {
		most = doubtAfter
	}
	if t.steepFor >= most {
		t.long, t.windows, t.steepFor = t.short, 0, 0
	}
}

// gradient is how much the short average is above the long one, as a part of that.
func (t *trend) gradient() float64 {
	if t.long == 0 {
		return 0
	}
	return t.short/t.long - 1
}

// high is what the limit is cut for. raised is what it does not grow at: by then the long
// average learns nothing either.
func (t *trend) high() bool   { return t.gradient() >= steep }
func (t *trend) raised() bool { return t.gradient() >= steep/2 }
