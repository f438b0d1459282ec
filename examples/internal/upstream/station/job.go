package station

import (
	"container/list"
	"context"
	"time"
)

// Job is one call that was taken in. Await and one of Answer and Leave belong to its
// caller; only one Await at a time.
type Job struct {
	station *Station
	work    time.Duration

	// Guarded by station.mu.
	place    *list.Element // while waiting
	finish   *event        // from the start of service on
	start    time.Duration // virtual
	finished bool
	over     bool // Answer or Leave was called
	wanted   *event
}

// Work returns how long the job takes at full speed.
func (j *Job) Work() time.Duration { return j.work }

// Await blocks until the job has got so much work, at most Work. Await(ctx, 0) returns
// when its service starts. It fails with ctx's error when that ends, even where the work
// was there at the same moment, and with [ErrClosed]; the job then stays as it is.
func (j *Job) Await(ctx context.Context, work time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ev := j.want(min(work, j.work))
	if ev == nil {
		return nil
	}
	select {
	case <-ev.reached:
		return ctx.Err()
	case <-ctx.Done():
		j.unwant(ev)
		return ctx.Err()
	case <-j.station.closed:
		j.unwant(ev)
		return ErrClosed
	}
}

// Answer says that the caller gets its answer now. Call it just before the last of the
// answer is written: who has read it may send the next call, and the two must not count as
// concurrent. Before the service has ended it is a Leave.
func (j *Job) Answer() { j.end(true) }

// Leave says that the caller has gone, or cannot be answered. A job that waits leaves
// the queue. One in service stops there, or, under Share, is worked on to its end
// and holds its share until then. After Answer it does nothing, so that it can be deferred.
func (j *Job) Leave() { j.end(false) }

// want returns the event that j has got so much work, or nil if it has.
func (j *Job) want(work time.Duration) *event {
	s := j.station
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked()
	defer s.rearmLocked()
	if j.finish != nil && s.virtual-j.start >= work || j.finished {
		return nil
	}
	j.wanted = &event{at: work, job: j, reached: make(chan struct{}), index: -1}
	if j.finish != nil {
		j.scheduleWantedLocked()
	}
	return j.wanted
}

// scheduleWantedLocked puts what j awaits on the clock, which it can once j has started.
func (j *Job) scheduleWantedLocked() {
	j.wanted.at += j.start
	j.station.events.schedule(j.wanted)
}

func (j *Job) unwant(ev *event) {
	s := j.station
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.cancel(ev)
	j.wanted = nil
}

func (j *Job) end(answered bool) {
	s := j.station
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceLocked()
	defer s.rearmLocked()
	if j.over {
		return
	}
	j.over = true
	if answered && j.finished {
		s.stats.Completed++
		s.stats.Concurrent--
		return
	}
	s.stats.Abandoned++
	switch {
	case j.place != nil:
		s.waiting.Remove(j.place)
		j.place = nil
		s.stats.Concurrent--
	case j.finished:
		s.stats.Concurrent--
		s.wasteLocked(j, j.finish.at)
	case s.discipline == Share:
		s.wasteLocked(j, s.virtual)
		s.orphans++
	default:
		s.events.cancel(j.finish)
		s.events.cancel(j.wanted)
		s.stats.Concurrent--
		s.wasteLocked(j, s.virtual)
		s.serving--
		s.startLocked()
	}
}

// startLocked starts the service of all who may be served now.
func (s *Station) startLocked() {
	for s.waiting.Len() > 0 && (s.discipline == Share || s.serving < s.capacity) {
		j, _ := s.waiting.Remove(s.waiting.Front()).(*Job)
		j.place = nil
		j.start = s.virtual
		j.finish = &event{at: s.virtual + j.work, job: j}
		s.events.schedule(j.finish)
		s.serving++
		if j.wanted != nil {
			j.scheduleWantedLocked()
		}
	}
}

// happenLocked carries out an event that is due.
func (s *Station) happenLocked(ev *event) {
	j := ev.job
	if ev.reached != nil {
		close(ev.reached)
		j.wanted = nil
		return
	}
	j.finished = true
	s.serving--
	if j.over { // only under Share: the caller left long ago
		s.stats.Concurrent--
		s.orphans--
	}
	s.startLocked()
}

// wasteLocked books as wasted what j has got until the virtual time end.
func (s *Station) wasteLocked(j *Job, end time.Duration) {
	s.stats.Wasted += max(0, end-max(j.start, s.since))
}
