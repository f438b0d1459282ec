package pressure

import (
	"math"
	"runtime/metrics"
	"time"
)

// goStats is what the Go runtime says about itself.
type goStats struct {
	ok bool // false: this runtime does not say

	memoryLimit int64 // GOMEMLIMIT in bytes, math.MaxInt64 = none
	live        int64 // bytes that the last collection has left; 0 = there was none yet
	objects     int64 // bytes of live objects and of those not collected yet
	free        int64 // bytes of heap that are free and could go back to the system
	held        int64 // bytes that the runtime has from the system
	gcSeconds   float64
	procs       int64 // GOMAXPROCS
}

// reader reads the runtime. It is used by one goroutine at a time.
type reader struct{ samples []metrics.Sample }

var metricNames = [...]string{
	"/gc/gomemlimit:bytes", "/gc/heap/live:bytes", "/memory/classes/heap/objects:bytes", "/memory/classes/heap/free:bytes",
	"/memory/classes/total:bytes", "/memory/classes/heap/released:bytes",
	"/sched/gomaxprocs:threads", "/cpu/classes/gc/total:cpu-seconds", "/cpu/classes/gc/mark/idle:cpu-seconds",
}

func (r *reader) read() (g goStats) {
	if r.samples == nil {
		r.samples = make([]metrics.Sample, len(metricNames))
		for i, name := range metricNames {
			r.samples[i].Name = name
		}
	}
	metrics.Read(r.samples)
	g.ok = true
	bytes := func(i int) int64 {
		if r.samples[i].Value.Kind() != metrics.KindUint64 {
			g.ok = false
			return 0
		}
		return int64(min(r.samples[i].Value.Uint64(), math.MaxInt64))
	}
	seconds := func(i int) float64 {
		if r.samples[i].Value.Kind() != metrics.KindFloat64 {
			g.ok = false
			return 0
		}
		return r.samples[i].Value.Float64()
	}
	g.memoryLimit, g.live, g.objects, g.free = bytes(0), bytes(1), bytes(2), bytes(3)
	g.held = bytes(4) - bytes(5)
	g.procs = bytes(6)
	// Idle marking takes time that nobody else wanted.
	g.gcSeconds = seconds(7) - seconds(8)
	return g
}

// gcWindow turns a counter of CPU seconds into a share. The runtime moves the counter at
// the end of a collection only, so one sample may get none of a long collection and the
// next one all: the share is that of the last samples together.
type gcWindow struct {
	points [gcSamples + 1]gcPoint // the newest first
	n      int
}

type gcPoint struct {
	at      time.Time
	seconds float64 // of the collector
	could   float64 // of all processors
	procs   int64
}

// gcSamples is over how many samples the share is taken.
const gcSamples = 3

// rounding is how much less a counter may read, in seconds, that has not moved: it is the
// difference of two large ones.
const rounding = 1e-6

// add takes a sample and returns the share of the CPU time since the oldest of the window.
// How many processors there are may change; between two samples it was the larger number.
// False until there are two samples.
func (w *gcWindow) add(now time.Time, seconds float64, procs int64) (share float64, ok bool) {
	next, last := gcPoint{at: now, seconds: seconds, procs: procs}, w.points[0]
	if seconds < last.seconds-rounding {
		w.n = 0
	}
	if w.n > 0 {
		next.could = last.could + float64(max(procs, last.procs))*now.Sub(last.at).Seconds()
	}
	copy(w.points[1:], w.points[:])
	w.points[0] = next
	w.n = min(w.n+1, len(w.points))
	oldest := w.points[w.n-1]
	could := next.could - oldest.could
	if could <= 0 || procs <= 0 {
		return 0, false
	}
	return min(max(seconds-oldest.seconds, 0)/could, 1), true
}

// spiralFloor is the part of the limit from which on the live heap can make the runtime
// collect without end. Below it a high share is an application that makes much garbage.
const spiralFloor = 0.6

// heapReadings returns the two signals of the Go runtime. share is false when it is not
// known yet.
func heapReadings(g *goStats, ceiling Ceiling, share float64, known bool) (heap, gc reading) {
	switch {
	case !g.ok:
		r := unknown("this Go runtime does not tell")
		return r, r
	case ceiling.Bytes <= 0:
		r := unknown("no memory limit is known")
		return r, r
	case g.live <= 0:
		heap = quietly("nothing has been collected yet")
	default:
		heap = ratio(g.live, ceiling.Bytes)
	}
	if !known {
		return heap, quietly("it takes two samples")
	}
	gc = reading{known: true, counts: true, value: share}
	if !heap.known || heap.value < spiralFloor {
		gc.counts, gc.reason = false, "does not count while the live heap is under 0.6 of the limit"
	}
	return heap, gc
}
