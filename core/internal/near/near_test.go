package near

import (
	"sync"
	"testing"
)

// Goroutines spread over the places.
func TestIndexSpreads(t *testing.T) {
	var mu sync.Mutex
	var wg, all sync.WaitGroup
	seen := make(map[uint]int)
	all.Add(256)
	for range 256 {
		wg.Go(func() {
			all.Done()
			all.Wait() // all stacks exist at once
			i := Index(0)
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

// The purposes of one caller have places of their own.
func TestIndexOfPurposes(t *testing.T) {
	var seen [Size]int
	for purpose := range uint(2 * Size) {
		seen[Index(purpose)]++
	}
	for i, n := range seen {
		if n != 2 {
			t.Errorf("place %d is that of %d of %d purposes", i, n, 2*Size)
		}
	}
}

func TestSame(t *testing.T) {
	a, b := string([]byte("lane one")), string([]byte("lane one"))
	if !Same(a, a) || Same(a, a[:4]) || Same(a, a[1:]) || Same(a, b) {
		t.Error("not what lies in the same place is the same")
	}
}
