package lanes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/pressure"
)

// plant is a back end and its callers in virtual time, around a bare law. The back end
// works on capacity cost units at full speed; more than that share it, so that
// latency = base x max(1, in use / capacity), with jitter.
type plant struct {
	t   *testing.T
	law *law
	rnd *rand.Rand

	base     time.Duration // to the first byte, alone
	hold     time.Duration // after it; 0 = a lease ends with it
	jitter   float64       // standard deviation of the logarithm of the work
	capacity float64       // cost units
	cost     float64       // of a call
	callers  int           // that ask again at once; 0 = as many as the limit lets in
	rate     float64       // arrivals a second instead of callers, 0 = callers
	fixed    time.Duration // latency whatever the load; 0 = as above

	now     time.Duration
	jobs    []job
	backlog float64
	done    []time.Duration // latencies
	limits  []int64         // at each window's end
}

type job struct {
	began time.Duration
	left  float64 // seconds of work until the first byte
	until time.Duration
	held  bool
}

func newPlant(t *testing.T, seed uint64, set func(*plant)) *plant {
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := &plant{t: t, rnd: rnd, base: time.Second, jitter: 0.3, capacity: 64, cost: 1}
	p.law = newLaw(lawConfig{algorithm: Gradient, least: 8, start: 64, most: 1000, window: time.Second}, rnd.Float64)
	set(p)
	return p
}

// alone leaves a test out of the race detector's runs, which would take minutes for it.
func alone(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine in virtual time: there is nothing to race")
	}
}

const tick = 20 * time.Millisecond

func (p *plant) inUse() int64 { return int64(float64(len(p.jobs)) * p.cost) }

// run lets the plant run for so many windows.
func (p *plant) run(windows int) {
	for end := p.now + time.Duration(windows)*time.Second; p.now < end; {
		p.now += tick
		p.arrive()
		p.work()
		if p.now%time.Second == 0 {
			waiting := p.callers == 0 && p.rate == 0 || p.backlog >= 1 || p.callers > len(p.jobs)
			p.law.close(int64(p.now), p.inUse(), waiting, pressure.Normal)
			p.limits = append(p.limits, p.law.limit)
		}
	}
}

func (p *plant) arrive() {
	if p.rate > 0 {
		p.backlog = min(p.backlog+p.rate*tick.Seconds(), 128)
	}
	for {
		switch {
		case p.inUse()+int64(p.cost) > p.law.limit:
			return
		case p.rate > 0 && p.backlog < 1, p.callers > 0 && len(p.jobs) >= p.callers:
			return
		}
		if p.rate > 0 {
			p.backlog--
		}
		work := p.base.Seconds() * math.Exp(p.jitter*p.rnd.NormFloat64())
		p.jobs = append(p.jobs, job{began: p.now - tick, left: work})
		p.law.look(p.inUse(), false)
	}
}

func (p *plant) work() {
	busy := 0.0
	for _, j := range p.jobs {
		if !j.held {
			busy += p.cost
		}
	}
	speed := min(1, p.capacity/busy) * tick.Seconds()
	if p.fixed > 0 {
		speed = tick.Seconds() * p.base.Seconds() / p.fixed.Seconds()
	}
	p.jobs = slices.DeleteFunc(p.jobs, func(j job) bool { return j.held && j.until <= p.now })
	rest := p.jobs[:0]
	for _, j := range p.jobs {
		if !j.held {
			if j.left -= speed; j.left <= 0 {
				d := p.now - j.began
				p.done = append(p.done, d)
				p.law.took(firstByte, d, int64(p.now))
				j.held, j.until = true, p.now+time.Duration(float64(p.hold)*(0.5+p.rnd.Float64()))
				if p.hold == 0 {
					continue
				}
			}
		}
		rest = append(rest, j)
	}
	p.jobs = rest
}

// mean is the mean limit of the last windows, and its least and most.
func (p *plant) mean(last int) (mean float64, least, most int64) {
	ls := p.limits[len(p.limits)-last:]
	sum := int64(0)
	for _, n := range ls {
		sum += n
	}
	return float64(sum) / float64(last), slices.Min(ls), slices.Max(ls)
}
