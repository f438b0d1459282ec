package admission

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Where there is room, a request costs no allocation, through the interface too.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and makes sync.Pool drop records at random")
	}
	b := budget(t, 64*mib, func(c *Config) {
		c.Exempt = []string{"/livez"}
		c.Factors = []Factor{{ContentType: "application/json", Times: 2}}
		c.MaxHeavyInFlight = 100
	})
	var g gate.Gate = b
	ctx := gate.WithFlow(context.Background(), "tenant", 3)
	for name, r := range map[string]gate.Request{
		"no body": {Method: "GET", Path: "/a", Flow: "10.0.0.1"},
		"light":   {Bytes: 10 * kib, ContentType: "text/plain; charset=utf-8"},
		"heavy":   {Bytes: mib, Path: "/b"},
		"unknown": {Bytes: -1},
		"factor":  {Bytes: 10 * kib, ContentType: "application/json; charset=utf-8"},
		"exempt":  {Path: "/livez"},
	} {
		n := testing.AllocsPerRun(1000, func() {
			l, err := g.Acquire(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			l.Release()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
	for _, mode := range []gate.Mode{gate.Off, gate.Shadow} {
		reload(t, b, func(c *Config) { c.Mode = mode })
		n := testing.AllocsPerRun(1000, func() {
			l, _ := g.Acquire(ctx, gate.Request{Bytes: mib})
			l.Release()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations, want none", mode, n)
		}
	}
}

// A body costs one allocation, whatever its length.
func TestBodyAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and makes sync.Pool drop records at random")
	}
	b := budget(t, 64*mib, nil)
	buf := make([]byte, 32*kib)
	deadline := func(time.Time) error { return nil }
	p := newPayload(0)
	for _, declared := range []int64{mib, -1} {
		n := testing.AllocsPerRun(100, func() {
			l, _ := b.Acquire(context.Background(), gate.Request{Bytes: declared})
			*p = payload{left: mib}
			body := l.Body(p, deadline)
			for {
				if _, err := body.Read(buf); err != nil {
					break
				}
			}
			l.Release()
		})
		if n > 1 {
			t.Errorf("declared %d: %v allocations, want one", declared, n)
		}
	}
}

// What a request costs where there is room: everything that byte admission adds to
// one that is not refused and does not wait.
func BenchmarkUncontended(b *testing.B) {
	budget := budget(b, 64*mib, nil)
	var g gate.Gate = budget
	ctx := context.Background()
	for _, c := range []struct {
		name string
		r    gate.Request
	}{{"nobody", gate.Request{}}, {"light", gate.Request{Bytes: 10 * kib}}, {"heavy", gate.Request{Bytes: mib}}, {"unknown", gate.Request{Bytes: -1}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := g.Acquire(ctx, c.r)
				if err != nil {
					b.Fatal(err)
				}
				l.Release()
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				l, err := g.Acquire(ctx, gate.Request{Bytes: 10 * kib})
				if err == nil {
					l.Release()
				}
			}
		})
	})
}

// What reading a body under a lease costs beside reading it bare, in 32 KiB pieces
// and with a deadline for each Read.
func BenchmarkBody(b *testing.B) {
	budget := budget(b, 64*mib, nil)
	ctx := context.Background()
	deadline := func(time.Time) error { return nil }
	buf := make([]byte, 32*kib)
	p := newPayload(0)
	read := func(b *testing.B, r io.Reader) {
		for {
			if _, err := r.Read(buf); err == io.EOF {
				return
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("bare", func(b *testing.B) {
		b.SetBytes(mib)
		b.ReportAllocs()
		for b.Loop() {
			*p = payload{left: mib}
			read(b, p)
		}
	})
	for name, declared := range map[string]int64{"known": mib, "unknown": -1} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(mib)
			b.ReportAllocs()
			for b.Loop() {
				l, err := budget.Acquire(ctx, gate.Request{Bytes: declared})
				if err != nil {
					b.Fatal(err)
				}
				*p = payload{left: mib}
				read(b, l.Body(p, deadline))
				l.Release()
			}
		})
	}
}
