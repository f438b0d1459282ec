package pressure

import (
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// One sample of this machine, all of its files included.
func BenchmarkSample(b *testing.B) {
	c := DefaultConfig()
	o := theOutside(c)
	s := sampler{physical: o.physical, runtime: o.runtime()}
	root := os.DirFS("/")
	b.ReportAllocs()
	for b.Loop() {
		s.take(time.Now(), root, &c)
	}
}

func BenchmarkSeverity(b *testing.B) {
	m, err := New(DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.ReportAllocs()
	for b.Loop() {
		if m.Severity() == Critical {
			b.Log("critical")
		}
	}
}

// What BenchmarkSeverity is to be compared with.
func BenchmarkAtomicLoad(b *testing.B) {
	var v atomic.Uint32
	b.ReportAllocs()
	for b.Loop() {
		if v.Load() == uint32(Critical) {
			b.Log("critical")
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	m, err := New(DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Snapshot()
	}
}

// What every request may ask costs no allocation.
func TestSeverityAllocatesNothing(t *testing.T) {
	m, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Severity(), m.Ready() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
