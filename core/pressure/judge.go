package pressure

import "time"

// After so many samples in a row below critical, critical falls to high, and after so many
// below high, high falls to normal, though no sample was clean.
const (
	stuckCritical = 3
	stuckHigh     = 10
)

// grade is what one sample of one signal says.
type grade struct {
	severity Severity
	clean    bool // at or under Recovered
}

// calm is the grade of a signal that is unknown: it neither raises the severity nor keeps
// it.
func calm() grade { return grade{clean: true} }

// grade judges a value. Both ends count: a value at High is high, one at Recovered is
// recovered, also where that is 0.
func (t Thresholds) grade(v float64) grade {
	switch {
	case v >= t.Critical:
		return grade{severity: Critical}
	case v >= t.High:
		return grade{severity: High}
	}
	return grade{clean: v <= t.Recovered}
}

// judge turns samples into a severity. It knows no clock. The zero judge is normal.
type judge struct {
	severity Severity
	cause    signal    // what raised the severity, or last kept it up; of no meaning while normal
	last     Severity  // of the sample before
	below    int       // samples in a row below severity, since it last changed
	held     time.Time // the severity stays critical until then
}

// step takes the sample of now and reports whether the severity has changed. killed
// says that the OOM killer was at work since the sample before; that keeps the severity
// critical for hold.
func (j *judge) step(now time.Time, grades *[signals]grade, killed bool, hold time.Duration) (changed bool) {
	worst, cause, clean := Normal, signal(noSignal), true
	for s, g := range grades {
		if g.severity > worst {
			worst, cause = g.severity, signal(s) // of equal ones the first
		}
		clean = clean && g.clean
	}
	agreed := min(worst, j.last)
	j.last = worst
	if killed {
		j.held = now.Add(hold)
	}
	if worst < j.severity {
		j.below++
	} else {
		j.below = 0
	}

	next := j.severity
	switch {
	case grades[oom].severity == Critical:
		next = Critical
	case agreed > j.severity:
		next = agreed
	case now.Before(j.held):
	case clean:
		next = Normal
	case j.severity == Critical && j.below >= stuckCritical:
		next = High
	case j.severity == High && j.below >= stuckHigh:
		next = Normal
	}
	return j.set(next, worst, cause)
}

func (j *judge) set(next, worst Severity, cause signal) (changed bool) {
	changed = next != j.severity
	if worst >= next && worst != Normal {
		j.cause = cause
	}
	if changed {
		j.severity, j.below = next, 0
	}
	return changed
}
