// Package station is a service station as queueing theory knows it: jobs arrive,
// each needs an amount of service, and a capacity says how many are served at
// full speed. What happens beyond the capacity is the [Discipline].
//
// It keeps the books of a back end and holds up the callers for as long as the
// work would take; the work itself is only time.
//
// # How time passes
//
// Every job in service progresses at the same speed, min(1, capacity/jobs) seconds
// of work per second, whatever the discipline: where jobs wait or are refused, there
// are never more of them in service than the capacity, and the speed is 1. So one
// clock, the virtual time, tells all of them: it runs at that speed, a job that
// started at virtual time v has got (now - v) of work, and whatever is to happen at
// some amount of work has a fixed place on it. A heap holds these places, one
// timer waits for the first. When the timer comes late, as timers do, all that was
// due is booked at the moment it was due, so that no capacity is lost.
package station

import (
	"container/list"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Discipline says what becomes of jobs beyond the capacity.
type Discipline int

const (
	// Queue lets them wait, first come first served.
	Queue Discipline = iota
	// Share serves all at once, each slower in proportion (processor sharing). A
	// job whose caller has left is worked on to its end: nobody tells the processor.
	Share
	// Refuse turns them away with [ErrFull].
	Refuse
)

// MaxService is the longest mean service time.
const MaxService = time.Hour

// Errors of Enter and Await.
var (
	ErrFull   = errors.New("over capacity")
	ErrClosed = errors.New("closed")
)

// Config is what a Station is made of. Values are literal; there are no defaults.
type Config struct {
	// Capacity is how many jobs are served at full speed. At least 1.
	Capacity int
	// Discipline rules what is beyond. Zero is Queue.
	Discipline Discipline
	// Service is the mean work of a job: how long it takes at full speed. 0 up to
	// MaxService; 0 is done at once.
	Service time.Duration
	// Jitter spreads the work evenly over Service x (1 - Jitter .. 1 + Jitter). 0 up
	// to 1.
	Jitter float64
	// Seed decides the draws: with the same seed the n-th job that was taken in has
	// the same work.
	Seed uint64
}

// Validate returns an error that names the first field out of range and its value.
func (c Config) Validate() error {
	switch {
	case c.Capacity < 1:
		return fmt.Errorf("capacity %d: want 1 or more", c.Capacity)
	case c.Discipline < Queue || c.Discipline > Refuse:
		return fmt.Errorf("discipline %d: want Queue, Share or Refuse", c.Discipline)
	case c.Service < 0 || c.Service > MaxService:
		return fmt.Errorf("service %v: want 0 to %v", c.Service, MaxService)
	case !(c.Jitter >= 0 && c.Jitter <= 1): // also NaN
		return fmt.Errorf("jitter %v: want 0 to 1", c.Jitter)
	}
	return nil
}

// Stats is a station's books. At any moment
//
//	Started = Completed + Abandoned + Concurrent
//
// except that under Share, Concurrent also holds jobs that were abandoned and are still
// worked on.
type Stats struct {
	// Concurrent counts the jobs taken in and not yet answered: waiting, in service,
	// and done but not answered. MaxConcurrent is the most there were.
	Concurrent, MaxConcurrent int
	// Waiting and Serving say how many of them wait and are in service.
	Waiting, Serving int
	// Started counts the jobs taken in, Completed those answered, Abandoned those
	// whose caller left before, Refused those not taken in.
	Started, Completed, Abandoned, Refused int64
	// Work is the work done up to now, for whomever; Wasted the part of it that went
	// to jobs since abandoned.
	Work, Wasted time.Duration
}

// Station serves jobs. It is safe for concurrent use.
type Station struct {
	capacity   int64
	discipline Discipline
	service    time.Duration
	jitter     float64
	closed     chan struct{} // closed by Close

	mu      sync.Mutex
	rng     *rand.Rand
	timer   *time.Timer
	now     time.Time     // up to when all is booked
	virtual time.Duration // the virtual time at now
	since   time.Duration // the virtual time of the last Reset
	events  events        // not empty exactly when a job is in service
	waiting list.List     // of *Job, first come first
	serving int64
	orphans int64 // those in service whose caller has left, only under Share
	stats   Stats // but for Waiting and Serving
}

// New returns a Station without jobs. Its caller owes it a Close. The error is
// that of Config.Validate.
func New(c Config) (*Station, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Station{
		capacity:   int64(c.Capacity),
		discipline: c.Discipline,
		service:    c.Service,
		jitter:     c.Jitter,
		closed:     make(chan struct{}),
		rng:        rand.New(rand.NewPCG(c.Seed, 0)),
		now:        time.Now(),
	}
	s.timer = time.AfterFunc(MaxService, s.tick)
	s.timer.Stop()
	return s, nil
}

// Close ends every Await, now and later, with [ErrClosed]; Enter fails with it. Jobs
// still owe their Answer or Leave. Closing twice does nothing.
func (s *Station) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return
	}
	close(s.closed)
	s.timer.Stop()
}

// Enter takes a job in. Its caller owes the job exactly one of Answer and Leave; the first
// of them counts. It fails with [ErrFull] under Refuse, when as many jobs as the
// capacity are in service, and with [ErrClosed].
func (s *Station) Enter() (*Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return nil, ErrClosed
	}
	s.advanceLocked()
	defer s.rearmLocked()
	if s.discipline == Refuse && s.serving >= s.capacity {
		s.stats.Refused++
		return nil, ErrFull
	}
	s.stats.Started++
	s.stats.Concurrent++
	s.stats.MaxConcurrent = max(s.stats.MaxConcurrent, s.stats.Concurrent)
	j := &Job{station: s, work: s.drawLocked()}
	j.place = s.waiting.PushBack(j)
	s.startLocked()
	return j, nil
}

// Stats returns the books as of now.
func (s *Station) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked()
	defer s.rearmLocked()
	st := s.stats
	st.Waiting, st.Serving = s.waiting.Len(), int(s.serving)
	return st
}

// Reset starts the books afresh. Jobs that are here now count as Started, and in
// MaxConcurrent; the work they get from now on counts.
func (s *Station) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked()
	defer s.rearmLocked()
	s.since = s.virtual
	inside := s.stats.Concurrent
	present := s.stats.Started - s.stats.Completed - s.stats.Abandoned
	s.stats = Stats{Concurrent: inside, MaxConcurrent: inside, Started: present}
}

func (s *Station) drawLocked() time.Duration {
	spread := s.jitter * (2*s.rng.Float64() - 1)
	return time.Duration(float64(s.service) * (1 + spread))
}

func (s *Station) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}
