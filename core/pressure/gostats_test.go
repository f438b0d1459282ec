package pressure

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The reader says what the runtime does: idle marking is not in the collector's time.
func TestReader(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the counters move at the end of a collection only
	held := chains(8)
	value := func(name string) float64 {
		s := []metrics.Sample{{Name: name}}
		metrics.Read(s)
		switch s[0].Value.Kind() {
		case metrics.KindUint64:
			return float64(s[0].Value.Uint64())
		case metrics.KindFloat64:
			return s[0].Value.Float64()
		}
		t.Fatalf("the runtime has no %s", name)
		return 0
	}
	for range 20 {
		runtime.GC()
	}
	var r reader
	g := r.read()
	idle := value("/cpu/classes/gc/mark/idle:cpu-seconds")
	if idle == 0 {
		t.Log("no idle marking came about: one processor, or a busy machine")
	}
	for name, got := range map[string]float64{
		"/gc/heap/live:bytes":       float64(g.live),
		"/gc/gomemlimit:bytes":      float64(g.memoryLimit),
		"/sched/gomaxprocs:threads": float64(g.procs),
	} {
		if want := value(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if want := value("/cpu/classes/gc/total:cpu-seconds") - idle; math.Abs(g.gcSeconds-want) > 1e-9 {
		t.Errorf("the collector's time is %v, want %v", g.gcSeconds, want)
	}
	if !g.ok || g.live < 8*mib || g.objects < g.live/2 || g.held < g.objects || g.free < 0 {
		t.Errorf("%+v", g)
	}
	runtime.KeepAlive(held)
}

// A runtime that does not say something makes the signals unknown, and no number is made up.
func TestReaderOfAnotherRuntime(t *testing.T) {
	for i := range metricNames {
		r := reader{samples: make([]metrics.Sample, len(metricNames))}
		for k, name := range metricNames {
			r.samples[k].Name = name
		}
		r.samples[i].Name = "/no/such:metric"
		if g := r.read(); g.ok {
			t.Errorf("%s is missing: %+v", metricNames[i], g)
		}
	}
}
