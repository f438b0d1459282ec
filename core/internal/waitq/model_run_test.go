package waitq

import (
	"math/rand/v2"
	"testing"
)

// randomTape is a history of some 200 events, the same for the same seed.
func randomTape(seed uint64) tape {
	r := rand.New(rand.NewPCG(seed, 7))
	t := make(tape, 1000+r.IntN(400))
	for i := range t {
		t[i] = byte(r.Uint32())
	}
	return t
}

// mustAgree plays a history on the queue and on the model.
func mustAgree(t *testing.T, data []byte) {
	t.Helper()
	if newPair(data, theRules()).run() == nil {
		return
	}
	p := newPair(data, theRules()) // once more, aloud
	p.trace = t.Logf
	t.Logf("limit %d, class limits %v, timeout %d, step %d, waiters %d, held %d, tags from %#x",
		p.q.limit, p.m.classLimit, p.q.timeout, p.q.step, p.q.maxWait, p.q.maxHeld, p.base)
	t.Fatal(p.run())
}

// TestModel plays random histories on the queue and its model. After each event
// both must have the same outcomes in the same order and the same state, and the
// laws must hold.
func TestModel(t *testing.T) {
	n := uint64(4000)
	if testing.Short() || raceEnabled {
		n = 400
	}
	for seed := range n {
		mustAgree(t, randomTape(seed))
	}
}

// FuzzModel is TestModel with histories that the fuzzer writes.
func FuzzModel(f *testing.F) {
	for seed := range uint64(8) {
		f.Add([]byte(randomTape(seed)[:300]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4000 {
			t.Skip("longer than it needs to be to find anything")
		}
		mustAgree(t, data)
	})
}
