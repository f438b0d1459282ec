package waitq

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestCanceledAreNeverAdmitted: of 10,000 callers whose contexts end in the same
// instant in which room comes free, none is admitted.
func TestCanceledAreNeverAdmitted(t *testing.T) {
	const callers = 10_000
	bubble(t, conf(4), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 4})
		ctx, cancel := context.WithCancel(context.Background())
		var ended [Queued + 1]atomic.Int64
		for i := range callers {
			go func() {
				var l Lease
				r := Request{Class: i % Classes, Cost: int64(1 + i%5), Flow: string(rune('a' + i%20)), Held: 1}
				ended[q.Acquire(ctx, &l, r).Outcome].Add(1)
			}()
		}
		synctest.Wait()
		if s := q.Snapshot(); s.Waiting[0]+s.Waiting[1]+s.Waiting[2] != callers || s.Held != callers {
			t.Errorf("not all wait: %+v", s)
		}
		cancel()
		holder.lease.Release(holder.gen)
		synctest.Wait()
		if n := ended[Canceled].Load(); n != callers {
			t.Errorf("%d of %d canceled, %d granted", n, callers, ended[Granted].Load())
		}
	})
}

// TestGrantRaces lets grants, timeouts and callers' deadlines fall on the same
// instant, 100,000 times: whoever wins, no room is lost and none is made.
func TestGrantRaces(t *testing.T) {
	const batch = 500
	rounds := 200
	if testing.Short() || raceEnabled {
		rounds = 20
	}
	const end = time.Second
	c := conf(batch)
	c.Timeout = end
	bubble(t, c, func(t *testing.T, q *Queue) {
		var ended [Queued + 1]atomic.Int64
		for range rounds {
			holders := make([]Lease, batch)
			for i := range holders {
				if !q.TryAcquire(&holders[i], 0, 1) {
					t.Fatal("room was lost")
				}
				at := end
				if i%3 == 0 {
					at-- // in time for those who wait
				}
				gen := holders[i].Gen()
				time.AfterFunc(at, func() { holders[i].Release(gen) })
			}
			for i := range batch {
				go func() {
					ctx := context.Background()
					if i%2 == 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, end-time.Duration(i/2%2))
						defer cancel()
					}
					var l Lease
					res := q.Acquire(ctx, &l, Request{Cost: 1, Class: i % Classes})
					ended[res.Outcome].Add(1)
					if res.Outcome == Granted {
						if ctx.Err() != nil && res.Waited >= end {
							t.Error("granted after its time")
						}
						time.Sleep(2 * time.Nanosecond) // nobody else has this room in time
						l.Release(l.Gen())
					}
				}()
			}
			time.Sleep(2 * end)
			synctest.Wait()
			if s := q.Snapshot(); s.InUse != 0 || s.Leases != 0 || s.Queued != 0 {
				t.Fatalf("after a round: %+v", s)
			}
		}
		all := int64(0)
		for o := range ended {
			all += ended[o].Load()
		}
		granted, timedOut, canceled := ended[Granted].Load(), ended[TimedOut].Load(), ended[Canceled].Load()
		t.Logf("%d granted, %d timed out, %d canceled, %d without hope", granted, timedOut, canceled, ended[Hopeless].Load())
		if all != int64(rounds*batch) || granted == 0 || timedOut == 0 || canceled == 0 {
			t.Errorf("%d of %d callers have an outcome", all, rounds*batch)
		}
	})
}

// stress runs many goroutines that ask for, hold, grow, shrink and return leases
// of random cost up to largest, leave early, and release twice.
type stress struct {
	q       *Queue
	largest int64
	held    atomic.Int64 // what holders know that they hold, never more than in use
	most    atomic.Int64
	ended   [Queued + 1]atomic.Int64
}

func (s *stress) hold(n int64) {
	h := s.held.Add(n)
	for m := s.most.Load(); h > m && !s.most.CompareAndSwap(m, h); m = s.most.Load() {
	}
}

func (s *stress) run(t *testing.T, workers, rounds int, disturb func(r *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 9))
			var l Lease // used again and again
			for range rounds {
				s.one(t, r, &l)
				if disturb != nil && r.IntN(8) == 0 {
					disturb(r)
				}
			}
		})
	}
	wg.Wait()
}

func (s *stress) one(t *testing.T, r *rand.Rand, l *Lease) {
	req := Request{
		Class: r.IntN(Classes), Flow: string(rune('a' + r.IntN(5))), Weight: 1 + r.IntN(3),
		Cost: 1 + r.Int64N(s.largest), Held: r.Int64N(3),
	}
	if r.IntN(3) == 0 {
		req.Arrived = time.Now().Add(-time.Duration(r.IntN(6000)) * time.Microsecond)
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	switch r.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(2000))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(time.Duration(r.IntN(500))*time.Microsecond, cancel)
	case 2:
		var nothing Lease
		if s.q.TryAcquire(&nothing, req.Class, 0) {
			defer nothing.Release(nothing.Gen())
		} else {
			t.Error("a cost of 0 was refused by an open queue")
		}
	}
	defer cancel()
	res := s.q.Acquire(ctx, l, req)
	s.ended[res.Outcome].Add(1)
	if res.Outcome != Granted {
		return
	}
	gen := l.Gen()
	if l.Waited(gen) != res.Waited || res.Waited < 0 {
		t.Errorf("waited %v and %v", res.Waited, l.Waited(gen))
	}
	s.hold(req.Cost)
	got := req.Cost
	for range r.IntN(4) {
		runtime.Gosched()
		if n := r.Int64N(3); l.Grow(gen, n) {
			s.hold(n)
			got += n
		}
		if n := r.Int64N(got + 1); n > 0 {
			s.hold(-n)
			got -= n
			l.Shrink(gen, n)
		}
	}
	s.hold(-got)
	s.releaseTwice(t, l, gen)
}

// releaseTwice releases from two goroutines while a third one grows: one of them
// does it, and nothing is taken for a lease that has gone.
func (s *stress) releaseTwice(t *testing.T, l *Lease, gen uint64) {
	done := make(chan bool)
	go func() { done <- l.Release(gen) }()
	go func() {
		l.Grow(gen, 0)
		l.Shrink(gen, 0)
		done <- false
	}()
	n := 0
	for _, did := range []bool{l.Release(gen), <-done, <-done} {
		if did {
			n++
		}
	}
	if n != 1 || l.Live(gen) || l.Release(gen) {
		t.Errorf("%d of 2 calls released the lease", n)
	}
}

// TestStress: at a fixed limit, what is held never exceeds it.
func TestStress(t *testing.T) {
	c := conf(16)
	c.ClassLimit[1], c.ClassLimit[2], c.Reserve, c.TrackWaits = 6, 3, 9, true
	c.Timeout, c.AgingStep, c.MaxWaiters, c.MaxHeld = 5*time.Millisecond, time.Millisecond, 40, 50
	s := &stress{q: New(c), largest: 12}
	s.run(t, 64, 300, nil)
	s.report(t, 16)
}

// TestStressReload is TestStress while everything is being changed.
func TestStressReload(t *testing.T) {
	reloaded := conf(16)
	reloaded.TrackWaits = true
	s := &stress{q: New(reloaded), largest: 4}
	s.run(t, 64, 200, func(r *rand.Rand) {
		switch r.IntN(12) {
		case 7:
			s.q.Pause(time.Now().Add(time.Duration(r.IntN(1000)) * time.Microsecond))
		case 8:
			s.q.Resume()
		case 9:
			s.q.Trim()
		case 10:
			s.q.Roll()
			s.q.Room(r.IntN(Classes))
		case 11:
			if w := s.q.Waits(); w.P50 > w.P90 || w.P50 < 0 {
				t.Errorf("%+v", w)
			}
		case 0, 1:
			s.q.SetLimit(4 + r.Int64N(13))
		case 2:
			retime(s.q, reloaded, time.Duration(r.IntN(5))*time.Millisecond)
		case 3:
			c := reloaded
			c.ClassLimit[1+r.IntN(2)] = 1 + r.Int64N(8)
			s.q.Reconfigure(c)
		case 4:
			s.q.Shed(r.IntN(Classes))
		case 5:
			c := conf(4 + r.Int64N(13))
			c.MaxWaiters, c.AgingStep, c.MaxHeld = r.IntN(64), time.Duration(r.IntN(3))*time.Millisecond, r.Int64N(100)
			c.Reserve = r.Int64N(20)
			s.q.Reconfigure(c)
		case 6:
			s.q.Snapshot()
			s.q.RetryAfter(r.IntN(Classes), 1)
			s.q.InUse()
		}
	})
	s.q.Resume()
	s.q.Reconfigure(conf(16))
	s.report(t, 16)
	counted := int64(0)
	for _, w := range s.q.Waits().Total {
		for _, n := range w.Buckets {
			counted += n
		}
	}
	all := int64(0)
	for i := range Classes {
		n := s.q.Snapshot()
		all += n.Immediate[i] + n.Outcomes[i][Granted] + n.Outcomes[i][TimedOut]
	}
	if counted != all {
		t.Errorf("%d waits in the totals, %d requests were granted or timed out", counted, all)
	}
}

// TestStressNoWakeUpIsLost: with nothing but releases to wake them, all are granted.
func TestStressNoWakeUpIsLost(t *testing.T) {
	c := conf(8)
	c.Timeout, c.ClassLimit[2] = 24*time.Hour, 3
	q := New(c)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			var l Lease
			for range 400 {
				req := Request{Class: r.IntN(Classes), Cost: 1 + r.Int64N(8), Flow: string(rune('a' + i%7))}
				if o := q.Acquire(context.Background(), &l, req).Outcome; o != Granted {
					t.Errorf("outcome %d", o)
					return
				}
				runtime.Gosched()
				l.Release(l.Gen())
			}
		})
	}
	wg.Wait()
	wantIdle(t, q)
}

func (s *stress) report(t *testing.T, limit int64) {
	t.Helper()
	var n [Queued + 1]int64
	for i := range n {
		n[i] = s.ended[i].Load()
	}
	t.Logf("at most %d of %d held; outcomes %v", s.most.Load(), limit, n)
	if s.most.Load() > limit {
		t.Errorf("W2: %d were held at a limit of %d", s.most.Load(), limit)
	}
	if s.most.Load() < limit/4 {
		t.Error("there was hardly any contention")
	}
	wantIdle(t, s.q)
}
