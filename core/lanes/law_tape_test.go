package lanes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/pressure"
)

// lawTape plays one history on the law and on the model, and returns the first
// difference.
// One window in change changes the world.
func lawTape(r *rand.Rand, windows, change int, seen map[string]int) error {
	c := lawConfig{
		algorithm: []Algorithm{Gradient, Gradient, Gradient, AIMD, Fixed}[r.IntN(5)],
		least:     int64(1 + r.IntN(12)), window: []time.Duration{time.Second, 100 * time.Millisecond}[r.IntN(2)],
	}
	c.start = c.least + int64(r.IntN(100))
	c.most = c.start + int64(r.IntN(300))
	seed := r.Uint64()
	l := newLaw(c, rand.New(rand.NewPCG(seed, 1)).Float64)
	m := newRefLaw(c, rand.New(rand.NewPCG(seed, 1)).Float64)
	base, noise, now := 0.02+r.Float64(), r.Float64()*0.6, int64(0)
	load, streams := 1.0, r.IntN(3) == 0
	for w := range windows {
		if r.IntN(change) == 0 {
			load, noise = []float64{0, 0.2, 1, 1, 1}[r.IntN(5)], r.Float64()*0.6
			base *= []float64{0.3, 0.8, 1, 1.2, 2, 5}[r.IntN(6)]
			base = min(max(base, 0.001), 60)
		}
		at := func(part float64) int64 { return now + int64(part*float64(c.window)) }
		for i := range r.IntN(40) {
			if load == 0 {
				break
			}
			part := float64(i) / 40
			playEvent(r, l, m, at(part), base*math.Exp(noise*r.NormFloat64()), load)
		}
		now += int64(c.window) + int64(r.IntN(3))*int64(c.window)/50
		inUse, waiting := int64(load*float64(l.limit)), load == 1 && r.IntN(4) > 0
		if streams && l.dipping {
			inUse = l.limit + 1 // what is in use outlasts the dip
		}
		s := []pressure.Severity{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, pressure.High, pressure.Critical}[r.IntN(20)]
		if r.IntN(3) > 0 {
			s = pressure.Normal
		}
		dipping, limit := l.dipping, l.limit
		l.close(now, inUse, waiting, s)
		m.close(now, inUse, waiting, s)
		if err := sameLaw(l, m); err != nil {
			return fmt.Errorf("window %d: %w", w, err)
		}
		seen["dips"] += btoi(l.dipping && !dipping)
		seen["growth"] += btoi(l.limit > limit)
		seen["cuts"] += btoi(l.limit < limit)
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// playEvent lets one thing happen to both.
func playEvent(r *rand.Rand, l *law, m *refLaw, at int64, latency, load float64) {
	switch r.IntN(12) {
	case 0:
		if r.IntN(10) == 0 {
			l.failedOnce()
			m.bad++
		}
	case 1:
		n := int64(load * float64(l.limit) * r.Float64())
		l.look(n, false)
		m.uses = append(m.uses, min(1, float64(n)/float64(m.limit)))
	case 2:
		if r.IntN(10) == 0 {
			l.pressed(pressure.Critical, at)
			m.pressed(pressure.Critical, at)
		}
	default:
		d := time.Duration(latency * 1e9)
		from := source(0)
		if r.IntN(300) == 0 {
			from = firstByte
		}
		l.took(from, d, at)
		m.took(from, d.Seconds(), at)
	}
}

func sameLaw(l *law, m *refLaw) error {
	close := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }
	switch t := &l.trend; {
	case l.limit != m.limit:
		return fmt.Errorf("limit %d, in the model %d", l.limit, m.limit)
	case l.limit < l.least || l.limit > l.most:
		return fmt.Errorf("limit %d out of %d..%d", l.limit, l.least, l.most)
	case !close(t.short, m.short) || !close(t.long, m.long):
		return fmt.Errorf("averages %v %v, in the model %v %v", t.short, t.long, m.short, m.long)
	case l.dipping != m.dip || (l.settleBy != 0) != m.waiting || t.n != len(m.samples):
		return fmt.Errorf("dip %v, settling %v, %d samples; in the model %v, %v, %d", l.dipping, l.settleBy != 0, t.n, m.dip, m.waiting, len(m.samples))
	}
	return nil
}

// TestLawModel plays random histories on the law and on the model.
func TestLawModel(t *testing.T) {
	n := uint64(400)
	if testing.Short() || raceEnabled {
		n = 120
	}
	seen := map[string]int{}
	for seed := range n {
		if err := lawTape(rand.New(rand.NewPCG(seed, 3)), 400, 40, seen); err != nil {
			t.Fatalf("history %d: %v", seed, err)
		}
	}
	for seed := range n / 40 { // and long ones, in which hours pass without a change
		if err := lawTape(rand.New(rand.NewPCG(seed, 5)), 6000, 2000, seen); err != nil {
			t.Fatalf("long history %d: %v", seed, err)
		}
	}
	t.Logf("%d histories of 400 windows, %d of 6000: %v", n, n/40, seen)
	for _, what := range []string{"dips", "growth", "cuts"} {
		if seen[what] < int(n)/4 {
			t.Errorf("%s: %d, so few show nothing", what, seen[what])
		}
	}
}

// FuzzLawModel is TestLawModel with seeds that the fuzzer makes.
func FuzzLawModel(f *testing.F) {
	f.Add(uint64(1), uint16(50))
	f.Fuzz(func(t *testing.T, seed uint64, windows uint16) {
		if err := lawTape(rand.New(rand.NewPCG(seed, 4)), int(windows%600), 40, map[string]int{}); err != nil {
			t.Fatal(err)
		}
	})
}

// The limit stays in its bounds whatever is told to the law, in whatever order.
func TestLawBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	l := newLaw(lawConfig{algorithm: Gradient, least: 8, start: 64, most: 1000, window: time.Second}, r.Float64)
	odd := []time.Duration{0, 1, -5, time.Nanosecond, time.Hour, math.MaxInt64, math.MinInt64}
	for i := range 20_000 {
		l.took(source(r.IntN(2)), odd[r.IntN(len(odd))], int64(i)*1e8)
		if i%20 == 0 {
			l.close(int64(i)*1e8, int64(r.IntN(2000)-500), r.IntN(2) == 0, pressure.Severity(r.IntN(3)/2))
		}
		if l.limit < 8 || l.limit > 1000 || math.IsNaN(l.trend.short) || math.IsNaN(l.trend.long) {
			t.Fatalf("step %d: limit %d, averages %v %v", i, l.limit, l.trend.short, l.trend.long)
		}
	}
	if !slices.Contains([]source{held, firstByte}, l.trend.from) {
		t.Error("no source")
	}
}
