package lanes

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/pressure"
)

// near fails the test unless the mean limit of the last windows is within a part of
// want, and logs it.
func (p *plant) near(name string, last int, want, part float64) {
	p.t.Helper()
	mean, least, most := p.mean(last)
	p.t.Logf("%s: mean limit %.0f, %.2f x %.0f (%d to %d), latency short %.2fs long %.2fs",
		name, mean, mean/want, want, least, most, p.law.trend.short, p.law.trend.long)
	if mean < want*(1-part) || mean > want*(1+part) {
		p.t.Errorf("%s: the limit is %.0f on average, want %.0f within %.0f %%", name, mean, want, 100*part)
	}
}

// The limit finds a capacity above and below where it starts, and follows when that is
// halved, however much the work of one call differs from another's.
func TestSimSettlesAndFollows(t *testing.T) {
	alone(t)
	for _, jitter := range []float64{0, 0.1, 0.3, 0.5} {
		for _, capacity := range []float64{24, 40, 64, 128, 200} {
			p := newPlant(t, uint64(capacity), func(p *plant) { p.capacity, p.jitter = capacity, jitter })
			p.run(300)
			p.near("settled", 150, capacity, 0.25)
			p.capacity /= 2
			from := len(p.limits)
			p.run(60)
			within := 0
			for float64(p.limits[from+within]) > 1.25*p.capacity {
				within++
			}
			t.Logf("jitter %.1f, capacity %.0f: halved, within 25 %% after %d windows", jitter, capacity, within+1)
			if most := 15; within+1 > most {
				t.Errorf("jitter %.1f, capacity %.0f: halved, it took %d windows, want at most 15", jitter, capacity, within+1)
			}
			p.near("halved", 45, max(p.capacity, 8*1.1), 0.25)
			p.capacity *= 2
			p.run(300)
			p.near("doubled", 100, capacity, 0.25)
		}
	}
}

// So it does where a call takes many windows, as whole answers of a model do.
func TestSimSlowBackends(t *testing.T) {
	alone(t)
	for _, c := range []struct {
		base     time.Duration
		capacity float64
		cost     float64
		part     float64
	}{
		{5 * time.Second, 8, 1, 0.4}, {5 * time.Second, 20, 1, 0.25}, {20 * time.Second, 16, 1, 0.25}, {20 * time.Second, 64, 1, 0.25},
		{20 * time.Second, 120, 1, 0.25}, {20 * time.Second, 24, 6, 1}, {time.Minute, 20, 1, 0.4},
	} {
		for seed := range uint64(2) {
			p := newPlant(t, seed, func(p *plant) { p.capacity, p.base, p.jitter, p.cost = c.capacity, c.base, 0.2, c.cost })
			p.run(2 * 3600)
			p.near("calls of "+c.base.String(), 1800, c.capacity, c.part)
		}
	}
}

// So it does where each call costs a few units, and few are in flight.
func TestSimCallsThatCostMore(t *testing.T) {
	alone(t)
	for _, capacity := range []float64{48, 120, 300} {
		p := newPlant(t, 8, func(p *plant) { p.capacity, p.cost = capacity, 6 })
		p.run(400)
		p.near("calls of 6 units", 200, capacity, 0.3)
	}
}

// A start far above the capacity, into a flood: the first latency that is seen is of the
// limit's own making.
func TestSimStartsInAFlood(t *testing.T) {
	alone(t)
	for seed := range uint64(5) {
		p := newPlant(t, seed, func(p *plant) { p.capacity = 20 })
		p.run(300)
		p.near("after five minutes", 150, 20, 0.25)
	}
}

// Streams hold their cost for minutes. Their first bytes are as quick as ever, and the
// limit does not collapse; it does not either where nobody reports first bytes and the
// hold of a stream is all that is seen.
func TestSimStreams(t *testing.T) {
	alone(t)
	p := newPlant(t, 1, func(p *plant) { p.capacity, p.hold = 1000, 3*time.Minute })
	p.run(1800)
	mean, least, _ := p.mean(1800)
	t.Logf("first bytes: mean limit %.0f, least %d", mean, least)
	if least < 40 || mean < 64 {
		t.Errorf("the limit fell to %d, its mean is %.0f", least, mean)
	}
	p = newPlant(t, 2, func(p *plant) { p.capacity, p.base, p.jitter = 1000, 3*time.Minute, 0.5 })
	p.run(3600)
	mean, least, _ = p.mean(3600)
	t.Logf("holds of streams: mean limit %.0f, least %d", mean, least)
	if least < 20 || mean < 64 {
		t.Errorf("the limit fell to %d, its mean is %.0f", least, mean)
	}
}

// D6: half an hour of 15 s instead of 100 ms. The limit goes down and stays down, and the
// long average is what it was; afterwards both come back.
func TestD6SimIncident(t *testing.T) {
	alone(t)
	for _, healthy := range []int{60, 600} {
		p := newPlant(t, 3, func(p *plant) { p.base, p.callers = 100*time.Millisecond, 200 })
		p.run(healthy)
		before, long := p.law.limit, p.law.trend.long
		p.fixed = 15 * time.Second
		p.run(1800)
		_, _, ever := p.mean(1800)
		mean, _, most := p.mean(1800 - 120)
		t.Logf("healthy for %d s: limit %d before; in the incident, after its first 2 minutes, mean %.1f, most %d; long average %.3fs, %.3fs before",
			healthy, before, mean, most, p.law.trend.long, long)
		if most > 10 || ever > before+2 || p.law.trend.long > 1.2*long {
			t.Errorf("healthy for %d s: limit up to %d, long average %.3fs, %.3fs before", healthy, most, p.law.trend.long, long)
		}
		p.fixed = 0
		p.run(120)
		p.near("two minutes after it", 20, 64, 0.35)
	}
}

// D7: latency a quarter above the usual for 10 minutes. The limit does not grow.
func TestD7SimModestOverload(t *testing.T) {
	alone(t)
	p := newPlant(t, 4, func(p *plant) { p.capacity, p.fixed = 1e9, time.Second })
	p.run(100)
	before := p.law.limit
	p.fixed = 1250 * time.Millisecond
	p.run(600)
	_, _, most := p.mean(590)
	t.Logf("limit %d before, at most %d in 10 minutes of 1.25 x latency", before, most)
	if most > before {
		t.Errorf("the limit grew from %d to %d", before, most)
	}
}

// A long average that was learned from answers out of a cache is given up: soon if it is
// young, after an hour if not.
func TestSimFalseBaseline(t *testing.T) {
	alone(t)
	for _, c := range []struct{ quick, within int }{{20, 300}, {600, 2 * 3600}} {
		p := newPlant(t, 5, func(p *plant) { p.base = 20 * time.Millisecond })
		p.run(c.quick)
		p.base, p.done = time.Second, nil
		at := 0
		for ; at < c.within && float64(p.law.limit) < 0.75*64 || at < 30; at++ {
			p.run(1)
		}
		t.Logf("%d windows of 20 ms, then 1 s: back at %d of 64 after %d windows", c.quick, p.law.limit, at)
		if at >= c.within {
			t.Errorf("the limit is still %d", p.law.limit)
		}
		p.run(200)
		p.near("and then", 100, 64, 0.25)
	}
}

// Below its capacity the back end sets the pace, and the limit is none of its concerns.
func TestSimLightLoad(t *testing.T) {
	alone(t)
	p := newPlant(t, 6, func(p *plant) { p.rate = 20 })
	p.run(600)
	mean, least, most := p.mean(600)
	t.Logf("20 of 64 in use: limit %.0f (%d to %d)", mean, least, most)
	if least < 64 {
		t.Errorf("the limit fell to %d", least)
	}
}

// Critical pressure halves the limit every window, high pressure takes a fifth; when it
// is over the limit comes back.
func TestSimPressure(t *testing.T) {
	alone(t)
	for s, want := range map[pressure.Severity][]int64{pressure.Critical: {32, 16, 8, 8}, pressure.High: {51, 40, 32, 25}} {
		p := newPlant(t, 7, func(*plant) {})
		for i, n := range want {
			p.now += time.Second
			p.law.close(int64(p.now), p.law.limit, true, s)
			if p.law.limit != n {
				t.Errorf("%v: limit %d after %d windows, want %d", s, p.law.limit, i+1, n)
			}
		}
		p.run(150)
		p.near("after it", 50, 64, 0.25)
	}
}

// D2: ten replicas that begin together and are always full are not in their dips
// together.
func TestD2SimReplicasDipApart(t *testing.T) {
	alone(t)
	const replicas, hour = 10, 3600
	dips := make([]int, hour)
	for r := range uint64(replicas) {
		p := newPlant(t, 100+r, func(p *plant) { p.capacity, p.jitter = 1e9, 0.1; p.law.most = 64 })
		for s := range hour {
			p.run(1)
			if p.law.dipping {
				dips[s]++
			}
		}
	}
	sum, most := 0, 0
	for _, n := range dips {
		sum, most = sum+n, max(most, n)
	}
	t.Logf("%d replicas: %.2f dip at once on average, %d at most; a replica dips %.1f %% of the time",
		replicas, float64(sum)/hour, most, 100*float64(sum)/hour/replicas)
	if most > 4 {
		t.Errorf("%d of %d dip in the same second", most, replicas)
	}
	if sum == 0 {
		t.Error("nobody dips: the test shows nothing")
	}
}

// D4: after a dip the limit goes on to be adapted, and is again what it was before.
func TestD4SimGoesOnAfterADip(t *testing.T) {
	alone(t)
	p := newPlant(t, 9, func(p *plant) { p.capacity = 1e9 })
	dips, grew := 0, 0
	for range 600 {
		was, limit := p.law.dipping, p.law.limit
		p.run(1)
		if p.law.dipping && !was {
			dips++
		}
		if p.law.limit == limit+1 {
			grew++
		}
	}
	t.Logf("%d dips in 600 windows, the limit grew in %d of them to %d", dips, grew, p.law.limit)
	if dips < 5 || grew < 400 || p.law.limit < int64(64+grew-dips*30) {
		t.Errorf("%d dips, %d times grown, limit %d", dips, grew, p.law.limit)
	}
}

// D3: a dip lowers the limit and never raises it, however low it is, and never below the
// least.
func TestD3DipOnlyLowers(t *testing.T) {
	for _, start := range []int64{8, 9, 10, 30} {
		p := newPlant(t, 10, func(p *plant) { p.capacity = 1e9; p.law.start, p.law.limit, p.law.most = start, start, start })
		for range 200 {
			p.run(1)
			if p.law.limit > start || p.law.limit < 8 {
				t.Fatalf("start %d: limit %d", start, p.law.limit)
			}
		}
	}
}
