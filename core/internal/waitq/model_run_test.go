package waitq

import (
	"math/rand/v2"
	"slices"
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
func mustAgree(t *testing.T, data []byte, in layout) {
	t.Helper()
	if newPair(data, theRules(), in).run() == nil {
		return
	}
	p := newPair(data, theRules(), in) // once more, aloud
	p.trace = t.Logf
	t.Logf("%s, limit %d, class limits %v, timeout %d, step %d, waiters %d, held %d, tags from %#x",
		in, p.q.limit, p.m.classLimit, p.q.timeout, p.q.step, p.q.maxWait, p.q.maxHeld, p.base)
	t.Fatal(p.run())
}

// TestModel plays random histories on the queue and its model. After each event
// both must have the same outcomes in the same order and the same state, and the
// laws must hold. So it is in a queue of units.
func TestModel(t *testing.T) {
	n := uint64(4000)
	if testing.Short() || raceEnabled {
		n = 400
	}
	for seed := range n {
		mustAgree(t, randomTape(seed), costs)
		if seed%2 == 0 {
			mustAgree(t, randomTape(seed), units)
		}
	}
}

// TestLayoutsAgree plays random histories of costs of 1 on a queue of units and on
// one of any costs. After each event both have had the same outcomes and say the same of
// themselves.
func TestLayoutsAgree(t *testing.T) {
	n := uint64(1000)
	if testing.Short() || raceEnabled {
		n = 100
	}
	for seed := range n {
		a, b := newPair(randomTape(seed), theRules(), ones), newPair(randomTape(seed), theRules(), units)
		for i := 0; len(a.tape) > 0 || len(b.tape) > 0; i++ {
			did, also := a.event(), b.event()
			if x, y := plainly(a.q), plainly(b.q); x != y || !slices.Equal(a.log, b.log) {
				t.Fatalf("history %d, event %d: %s, %s\nany costs %+v\nunits     %+v\n%v\n%v", seed, i, did, also, x, y, a.log, b.log)
			}
		}
	}
}

// plainly is a snapshot without what depends on the real clock.
func plainly(q *Queue) Snapshot {
	s := q.Snapshot()
	s.OldestWait, s.WaitingSince, s.Paused = 0, 0, 0
	return s
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
		mustAgree(t, data, costs)
		mustAgree(t, data, units)
	})
}
