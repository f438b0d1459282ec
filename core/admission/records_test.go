package admission

import (
	"sync"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// Every light lease is counted once, wherever its record came from, and a record
// that stands ready is held by one lease at a time.
func TestReadyRecords(t *testing.T) {
	c := DefaultConfig()
	c.MaxInflightBytes = 1 << 30
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const workers, rounds, depth = 8, 500, 40
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				var held []gate.Lease
				for i := range depth {
					l, err := b.Acquire(t.Context(), gate.Request{Bytes: int64(i % 3)})
					if err != nil {
						t.Error(err)
						return
					}
					held = append(held, l)
				}
				for i, l := range held {
					for _, other := range held[:i] {
						if l == other {
							t.Error("two leases are one")
						}
					}
				}
				for _, l := range held {
					l.Release()
					l.Release() // stale from here on
				}
			}
		})
	}
	wg.Wait()
	if s := b.Snapshot(); s.Admitted != workers*rounds*depth || s.Inflight != 0 || s.InflightBytes != 0 {
		t.Errorf("admitted %d, in flight %d of %d bytes, want %d and none", s.Admitted, s.Inflight, s.InflightBytes, workers*rounds*depth)
	}
}
