package pressure

import (
	"errors"
	"io/fs"
)

// signal is one of the things that are watched, in the order of the table in the package comment. Of
// two that say the same the first is named.
type signal int

const (
	liveHeap signal = iota
	workingSet
	memoryHigh
	psiSome
	psiFull
	gcShare
	oom
	signals  // how many there are
	noSignal = -1
)

var signalNames = [...]string{"live_heap", "working_set", "memory_high", "psi_some", "psi_full", "gc_share", "oom"}

// String returns the signal's name in snapshots and logs, "" for none.
func (s signal) String() string {
	if s < 0 || s >= signals {
		return ""
	}
	return signalNames[s]
}

// thresholds returns what c says about a signal; nothing about oom, which has none.
func (c *Config) thresholds(s signal) Thresholds {
	switch s {
	case liveHeap:
		return c.LiveHeap
	case workingSet:
		return c.WorkingSet
	case memoryHigh:
		return c.MemoryHigh
	case psiSome, psiFull:
		return c.PSI
	case gcShare:
		return c.GCShare
	}
	return Thresholds{}
}

// reading is what one sample knows of one signal.
type reading struct {
	known bool
	// counts is whether a known value is judged.
	counts bool
	value  float64 // what is compared: a ratio, percent, or a number of events
	grade  grade   // set by judging

	used, limit int64  // bytes, where value is their ratio
	level       string // of the cgroup, below its mount
	host        bool   // the value is the whole machine's
	parts       parts
	// reason says why the value is unknown or does not count, or what is odd about it.
	reason string
	// quiet readings are unknown for a plain reason, which is not worth a line in a log.
	quiet bool
	// trouble says that the reason is something that is there and cannot be used, which is
	// worth a warning.
	trouble bool
}

// parts are what used was made of, in bytes.
type parts struct {
	current, inactiveFile, activeFile, slab, garbage int64
}

func unknown(reason string) reading { return reading{reason: reason} }

// missing is unknown for an error.
func missing(err error) reading { return reading{reason: err.Error(), trouble: isTrouble(err)} }

// isTrouble reports whether an error is more than that a system has no such thing.
func isTrouble(err error) bool {
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported)
}

// quietly is unknown for a reason that is as it should be.
func quietly(reason string) reading { return reading{reason: reason, quiet: true} }

// ratio is the reading of used bytes over limit, which is > 0.
func ratio(used, limit int64) reading {
	return reading{known: true, counts: true, value: float64(used) / float64(limit), used: used, limit: limit}
}

// judge grades the reading by t.
func (r *reading) judge(t Thresholds) {
	r.grade = calm()
	if r.known && r.counts {
		r.grade = t.grade(r.value)
	}
}
