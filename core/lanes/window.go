package lanes

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// What a request finds in Controller.look.
const (
	asleep  = 1 << 0 // the timer is not set
	wanting = 1 << 1 // the window has timed too few requests
)

// timedEach is how many requests of each window are timed.
const timedEach = 64

// begin notes when a request began, for the windows that want to know. It wakes the
// timer, if that is asleep.
func (c *Controller) begin(rec *lease, ctx context.Context, s *settings, r *gate.Request) {
	look := c.look.Load()
	if look == 0 {
		return
	}
	stream := s.streams(ctx, r)
	if look&asleep != 0 {
		c.wake()
	}
	if look&wanting != 0 {
		rec.ctx, rec.stream, rec.start = ctx, stream, c.now()
		c.timeOne()
	}
}

func (c *Controller) timeOne() {
	if c.timed.Add(1) != timedEach {
		return
	}
	c.mu.Lock()
	c.look.Store(c.look.Load() &^ wanting)
	c.mu.Unlock()
}

// untimeLocked lets another request be timed in the place of one that came to nothing:
// else those that are refused or leave could use up all that a window times.
func (c *Controller) untimeLocked() {
	if c.timed.Load() > 0 && c.timed.Add(-1) == timedEach-1 && !c.closed.Load() {
		c.look.Store(c.look.Load() | wanting)
	}
}

// granted moves the beginning of a request that has waited to its grant.
func (c *Controller) granted(rec *lease) {
	if rec.start != 0 {
		rec.start = c.now()
	}
}

// ended tells the law of a timed request whose lease has been released.
func (c *Controller) ended(ctx context.Context, start int64, stream, told bool) {
	err := ctx.Err()
	now, inUse, waiting := c.now(), c.q.InUse(), c.q.Waiting()
	d := max(time.Duration(now-start), 1)
	if stream {
		d = 0 // it is over, and that is all that is known
	}
	gone := errors.Is(err, context.Canceled)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.law.look(inUse, waiting) // how full it is does not depend on how this one ended
	switch {
	case gone && !told:
		c.untimeLocked()
	case told || gone:
	case err != nil:
		c.law.failedOnce()
	default:
		c.law.took(held, d, now)
	}
}

// observed tells the law how the back end answered.
func (c *Controller) observed(s gate.Sample) {
	failed := s.Status == 429 || s.Status >= 500
	if s.Err != nil {
		var local *gate.Rejection
		if errors.Is(s.Err, context.Canceled) || errors.As(s.Err, &local) {
			return
		}
		failed = true
	}
	if !failed && (s.FirstByte <= 0 || s.Status >= 400) {
		return // a refusal of what was asked is quick, and tells nothing of the load
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if failed {
		c.law.failedOnce()
	} else {
		c.law.took(firstByte, s.FirstByte, now)
	}
}

// pressed notes how close to its memory limit the process is. Critical pressure cuts the
// limit at once; what goes on is seen at the end of each window.
func (c *Controller) pressed(s pressure.Severity) {
	c.severity.Store(uint32(s))
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if set := c.set.Load(); set.Mode == gate.Off || set.Algorithm == Fixed {
		return // no window would end, so that it would be remembered for ever
	}
	c.law.pressed(s, now)
	c.applyLocked()
	if s > pressure.Normal {
		c.wakeLocked()
	}
}

// seen is the severity to go by: that of the monitor, which tells nobody when it is closed,
// else the one that was told.
func (c *Controller) seen() pressure.Severity {
	if c.monitor != nil {
		return c.monitor.Severity()
	}
	return pressure.Severity(c.severity.Load())
}

// wake sets the timer, if it is not set.
func (c *Controller) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

func (c *Controller) wakeLocked() {
	s := c.set.Load()
	if c.timerSet || c.closed.Load() || s.Mode == gate.Off || s.Algorithm == Fixed {
		return
	}
	c.timerSet = true
	c.look.Store(c.look.Load() &^ asleep)
	if c.timer == nil {
		c.timer = time.AfterFunc(s.Window, c.tick)
	} else {
		c.timer.Reset(s.Window)
	}
}

// tick ends a window. It runs on the timer's own goroutine.
func (c *Controller) tick() {
	severity := c.seen()
	now, inUse, waiting := c.now(), c.q.InUse(), c.q.Waiting()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timerSet = false
	s := c.set.Load()
	if c.closed.Load() || s.Mode == gate.Off {
		return
	}
	rest := c.law.resting() && inUse == 0 && !waiting && c.timed.Load() == 0
	c.last = c.law.close(now, inUse, waiting, severity)
	c.applyLocked()
	if s.Algorithm == Fixed || rest && c.law.resting() {
		c.restLocked(s)
		return
	}
	c.timed.Store(0)
	c.look.Store(wanting)
	c.wakeLocked()
}

// applyLocked puts the law's limit in force.
func (c *Controller) applyLocked() {
	if n := c.law.limit; c.limit.Swap(n) != n {
		c.q.SetLimit(n)
	}
}

// restLocked lets the timer sleep until a request comes.
func (c *Controller) restLocked(s *settings) {
	c.timed.Store(0)
	look := uint32(wanting)
	if !c.timerSet {
		look |= asleep
	}
	if s.Algorithm == Fixed || s.Mode == gate.Off || c.closed.Load() {
		look = 0
	}
	c.look.Store(look)
}
