package pressure

import "time"

const (
	// freedEnough is the part of the held memory that a forced collection must free, for
	// the next one not to come twice as late.
	freedEnough = 0.05
	// maxFactor bounds how much later it gets. A heap that shrinks while there is no
	// traffic is found by the next one, so there must be one.
	maxFactor = 16
)

// pace says when to force a collection. It knows no clock.
type pace struct {
	factor  int       // of the interval, 0 = 1
	started time.Time // the last one; zero = never
	running bool
	total   int64
	freed   float64 // by the last one, of what was held
}

// due reports whether to start one now.
func (p *pace) due(now time.Time, s Severity, c *Config) bool {
	if s == Normal {
		p.factor = 1
		return false
	}
	return c.Collect && !p.running && (p.started.IsZero() || now.Sub(p.started) >= time.Duration(p.step())*c.CollectInterval)
}

func (p *pace) step() int { return max(p.factor, 1) }

func (p *pace) start(now time.Time) {
	p.started, p.running = now, true
	p.total++
}

// done notes how much of the held memory the collection has freed, 0..1.
func (p *pace) done(freed float64) {
	p.running, p.freed = false, freed
	if freed < freedEnough {
		p.factor = min(2*p.step(), maxFactor)
	} else {
		p.factor = 1
	}
}

// collector forces collections, in a goroutine of its own while there is one.
type collector struct {
	collect func() // debug.FreeOSMemory
	runtime func() goStats
}

// run returns the part of the memory held from the system that the collection has freed.
func (c *collector) run() float64 {
	before := c.runtime().held
	c.collect()
	after := c.runtime().held
	if before <= 0 || after >= before {
		return 0
	}
	return float64(before-after) / float64(before)
}
