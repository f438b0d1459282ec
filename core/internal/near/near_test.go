package near

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Whoever has a record has it alone, and takings are counted.
func TestTurn(t *testing.T) {
	var turn Turn
	if turn.Back() || turn.Taken() != 0 {
		t.Error("a record that was never out came back")
	}
	if !turn.Take() || turn.Take() || !turn.Back() || turn.Back() || turn.Taken() != 1 {
		t.Error("take and back do not alternate")
	}
	var taken, inside atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10_000 {
				if !turn.Take() {
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two have it")
				}
				taken.Add(1)
				inside.Add(-1)
				turn.Back()
			}
		})
	}
	wg.Wait()
	if got := turn.Taken(); got != taken.Load()+1 {
		t.Errorf("%d takings counted, %d made", got, taken.Load()+1)
	}
}

// Goroutines spread over the places.
func TestIndexSpreads(t *testing.T) {
	var mu sync.Mutex
	var wg, all sync.WaitGroup
	seen := make(map[uint64]int)
	all.Add(256)
	for range 256 {
		wg.Go(func() {
			all.Done()
			all.Wait() // all stacks exist at once
			i := Index()
			mu.Lock()
			defer mu.Unlock()
			seen[i]++
		})
	}
	wg.Wait()
	for i, n := range seen {
		if i >= Size || n > 64 {
			t.Errorf("place %d was picked %d times of 256", i, n)
		}
	}
	if len(seen) < Size/4 {
		t.Errorf("256 goroutines picked %d places", len(seen))
	}
}
