package station

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const service = 100 * time.Millisecond

func open(t *testing.T, c Config) *Station {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func enter(t *testing.T, s *Station) *Job {
	t.Helper()
	j, err := s.Enter()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// await fails the test where the work does not come.
func await(t *testing.T, j *Job, work time.Duration) {
	t.Helper()
	if err := j.Await(t.Context(), work); err != nil {
		t.Errorf("Await(%v): %v", work, err)
	}
}

// law checks what the documentation of Stats promises, for a station without
// abandoned jobs in service.
func law(t *testing.T, st Stats) {
	t.Helper()
	if st.Started != st.Completed+st.Abandoned+int64(st.Concurrent) {
		t.Errorf("started is not completed + abandoned + concurrent: %+v", st)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Capacity: 1, Service: service}
	for name, set := range map[string]func(*Config){
		"capacity 0":     func(c *Config) { c.Capacity = 0 },
		"capacity -3":    func(c *Config) { c.Capacity = -3 },
		"discipline 3":   func(c *Config) { c.Discipline = Refuse + 1 },
		"discipline -1":  func(c *Config) { c.Discipline = -1 },
		"service -1ns":   func(c *Config) { c.Service = -1 },
		"service 1h0m1s": func(c *Config) { c.Service = MaxService + time.Second },
		"jitter -0.1":    func(c *Config) { c.Jitter = -0.1 },
		"jitter 1.5":     func(c *Config) { c.Jitter = 1.5 },
		"jitter NaN":     func(c *Config) { c.Jitter = math.NaN() },
		"jitter +Inf":    func(c *Config) { c.Jitter = math.Inf(1) },
		"":               func(*Config) {},
	} {
		c := good
		set(&c)
		s, err := New(c)
		if name == "" {
			if err != nil {
				t.Errorf("a good config: %v", err)
				continue
			}
			s.Close()
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), name+": want ") {
			t.Errorf("want an error about %q, got %v", name, err)
		}
	}
}

func TestDrawsAreSeededAndWithinTheJitter(t *testing.T) {
	draw := func(seed uint64) (works []time.Duration) {
		s := open(t, Config{Capacity: 1, Service: service, Jitter: 0.2, Seed: seed})
		for range 1000 {
			j := enter(t, s)
			works = append(works, j.Work())
			j.Leave()
		}
		return works
	}
	a, b, c := draw(7), draw(7), draw(8)
	low, high, differ := a[0], a[0], false
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("draw %d: %v and %v with one seed", i, a[i], b[i])
		}
		differ = differ || a[i] != c[i]
		low, high = min(low, a[i]), max(high, a[i])
	}
	if !differ {
		t.Error("another seed draws the same")
	}
	if low < 80*time.Millisecond || low > 82*time.Millisecond || high > 120*time.Millisecond || high < 118*time.Millisecond {
		t.Errorf("1000 draws of 100ms +- 20%% are within %v..%v", low, high)
	}
}

// Within the capacity, and at exactly it, a job takes its work under each discipline.
func TestUpToCapacityNobodyWaits(t *testing.T) {
	for _, d := range []Discipline{Queue, Share, Refuse} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Config{Capacity: 4, Discipline: d, Service: service})
			began := time.Now()
			var all sync.WaitGroup
			for range 4 {
				j := enter(t, s)
				all.Go(func() {
					await(t, j, 0)
					if waited := time.Since(began); waited != 0 {
						t.Errorf("discipline %d: waited %v", d, waited)
					}
					await(t, j, j.Work())
					j.Answer()
				})
			}
			all.Wait()
			if took := time.Since(began); took != service {
				t.Errorf("discipline %d: took %v", d, took)
			}
			st := s.Stats()
			law(t, st)
			if st.Completed != 4 || st.Work != 4*service || st.MaxConcurrent != 4 || st.Concurrent != 0 || st.Wasted != 0 {
				t.Errorf("discipline %d: %+v", d, st)
			}
		})
	}
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 3, Service: service})
		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range 20 {
			j := enter(t, s)
			all.Go(func() {
				await(t, j, 0)
				if want := time.Duration(i/3) * service; time.Since(began) != want {
					t.Errorf("job %d started after %v, want %v", i, time.Since(began), want)
				}
				await(t, j, j.Work())
				mu.Lock()
				order = append(order, i/3)
				mu.Unlock()
				j.Answer()
			})
		}
		if st := s.Stats(); st.Waiting != 17 || st.Serving != 3 || st.Concurrent != 20 {
			t.Errorf("at the start: %+v", st)
		}
		all.Wait()
		for i := 1; i < len(order); i++ {
			if order[i] < order[i-1] {
				t.Fatalf("ended in the order of rounds %v", order)
			}
		}
		st := s.Stats()
		law(t, st)
		if st.Completed != 20 || st.MaxConcurrent != 20 || st.Work != 20*service {
			t.Errorf("at the end: %+v", st)
		}
	})
}

// With k jobs in service each takes k/capacity times as long, to the nanosecond.
func TestShareSlowsInProportion(t *testing.T) {
	for _, k := range []int{8, 12, 16, 24, 80} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Config{Capacity: 8, Discipline: Share, Service: service})
			began := time.Now()
			var all sync.WaitGroup
			for range k {
				j := enter(t, s)
				all.Go(func() {
					await(t, j, j.Work()/2)
					if want := service / 2 * time.Duration(k) / 8; time.Since(began) != want {
						t.Errorf("%d jobs: half the work after %v, want %v", k, time.Since(began), want)
					}
					await(t, j, j.Work())
					j.Answer()
				})
			}
			all.Wait()
			if want := service * time.Duration(k) / 8; time.Since(began) != want {
				t.Errorf("%d jobs took %v, want %v", k, time.Since(began), want)
			}
			if st := s.Stats(); st.Work != time.Duration(k)*service || st.MaxConcurrent != k {
				t.Errorf("%d jobs: %+v", k, st)
			}
		})
	}
}

func TestShareWorksOnForCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Discipline: Share, Service: service})
		began := time.Now()
		gone, stays := enter(t, s), enter(t, s)
		time.Sleep(service / 2)
		gone.Leave()
		gone.Leave()
		if st := s.Stats(); st.Abandoned != 1 || st.Concurrent != 2 || st.Serving != 2 || st.Work != service/2 || st.Wasted != service/4 {
			t.Errorf("after one left: %+v", st)
		}
		time.Sleep(service / 2)
		if st := s.Stats(); st.Work != service || st.Wasted != service/2 {
			t.Errorf("in the middle: %+v", st)
		}
		await(t, stays, stays.Work())
		stays.Answer()
		if took := time.Since(began); took != 2*service {
			t.Errorf("the other took %v, as if nobody was worked on beside it", took)
		}
		st := s.Stats()
		law(t, st)
		if st.Completed != 1 || st.Abandoned != 1 || st.Concurrent != 0 || st.Work != 2*service || st.Wasted != service {
			t.Errorf("at the end: %+v", st)
		}
	})
}

func TestQueueStopsForCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Service: service})
		began := time.Now()
		serving, waiting, next := enter(t, s), enter(t, s), enter(t, s)
		time.Sleep(service / 4)
		waiting.Leave()
		serving.Leave()
		await(t, next, 0)
		if waited := time.Since(began); waited != service/4 {
			t.Errorf("the next started after %v", waited)
		}
		await(t, next, next.Work())
		next.Leave() // too late to stop the work
		st := s.Stats()
		law(t, st)
		if st.Abandoned != 3 || st.Completed != 0 || st.Work != service/4+service || st.Wasted != st.Work || st.Concurrent != 0 {
			t.Errorf("at the end: %+v", st)
		}
	})
}

func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 2, Discipline: Refuse, Service: service})
		a, b := enter(t, s), enter(t, s)
		if _, err := s.Enter(); !errors.Is(err, ErrFull) {
			t.Errorf("the third: %v", err)
		}
		await(t, a, a.Work())
		// Both have been served; that nobody has fetched the answers does not fill the station.
		c := enter(t, s)
		for _, j := range []*Job{a, b} {
			j.Answer()
		}
		c.Leave()
		st := s.Stats()
		law(t, st)
		if st.Started != 3 || st.Refused != 1 || st.Completed != 2 || st.Abandoned != 1 || st.MaxConcurrent != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAnswerBeforeTheEndIsALeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Service: service})
		j := enter(t, s)
		j.Answer()
		if st := s.Stats(); st.Completed != 0 || st.Abandoned != 1 || st.Concurrent != 0 || st.Serving != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	for _, d := range []Discipline{Queue, Share} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Config{Capacity: 1, Discipline: d, Service: service})
			first, second := enter(t, s), enter(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), service/2)
			defer cancel()
			if err := second.Await(ctx, second.Work()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("discipline %d: %v", d, err)
			}
			if err := second.Await(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("discipline %d, ended before: %v", d, err)
			}
			// The job is as it was.
			await(t, second, second.Work())
			first.Answer()
			second.Answer()
			st := s.Stats()
			law(t, st)
			if st.Completed != 2 {
				t.Errorf("discipline %d: %+v", d, st)
			}
		})
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Service: service})
		var all sync.WaitGroup
		for range 3 {
			j := enter(t, s)
			all.Go(func() {
				defer j.Leave()
				if err := j.Await(t.Context(), service); !errors.Is(err, ErrClosed) {
					t.Errorf("Await: %v", err)
				}
			})
		}
		synctest.Wait()
		s.Close()
		s.Close()
		all.Wait()
		if _, err := s.Enter(); !errors.Is(err, ErrClosed) {
			t.Errorf("Enter: %v", err)
		}
		law(t, s.Stats())
		if st := s.Stats(); st.Concurrent != 0 || st.Abandoned != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestResetKeepsWhoIsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Discipline: Share, Service: service})
		enter(t, s).Leave()
		j := enter(t, s)
		time.Sleep(service) // half the work of each
		s.Reset()
		if st := s.Stats(); st != (Stats{Concurrent: 2, MaxConcurrent: 2, Serving: 2, Started: 1}) {
			t.Errorf("after Reset: %+v", st)
		}
		await(t, j, j.Work())
		j.Answer()
		st := s.Stats()
		law(t, st)
		if st.Completed != 1 || st.Abandoned != 0 || st.Work != service || st.Wasted != service/2 {
			t.Errorf("at the end: %+v", st)
		}
	})
}

// What a job got before Reset is not wasted after it.
func TestResetForgetsWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Service: service})
		j := enter(t, s)
		time.Sleep(service / 2)
		s.Reset()
		time.Sleep(service / 4)
		j.Leave()
		if st := s.Stats(); st != (Stats{MaxConcurrent: 1, Started: 1, Abandoned: 1, Work: service / 4, Wasted: service / 4}) {
			t.Errorf("%+v", st)
		}
	})
}

// A timer that comes late costs no capacity: what was due is booked as of when it was.
func TestLateTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Service: service})
		first, second, third := enter(t, s), enter(t, s), enter(t, s)
		s.timer.Stop()
		time.Sleep(2*service + service/2)
		if st := s.Stats(); st.Work != 2*service+service/2 || st.Serving != 1 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
		first.Answer()
		second.Answer()
		await(t, third, third.Work())
		third.Answer()
		if st := s.Stats(); st.Completed != 3 || st.Work != 3*service {
			t.Errorf("at the end: %+v", st)
		}
	})
}

// Where the times do not come out even, nobody gets more than the capacity.
func TestShareRoundsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 3, Discipline: Share, Service: 10})
		began := time.Now()
		jobs := make([]*Job, 7)
		for i := range jobs {
			jobs[i] = enter(t, s)
		}
		for _, j := range jobs {
			await(t, j, j.Work())
			j.Answer()
		}
		if took := time.Since(began); took != 24 { // 10 x 7 / 3 = 23.3
			t.Errorf("took %v", took)
		}
	})
}

// endsMeanwhile is a context that has ended when it is asked the second time.
type endsMeanwhile struct {
	context.Context
	asked int
}

func (c *endsMeanwhile) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

func TestCancellationWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{Capacity: 1, Service: service})
		j := enter(t, s)
		defer j.Leave()
		if err := j.Await(&endsMeanwhile{Context: t.Context()}, j.Work()); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestMulDiv(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		d, mul, div := rng.Int64N(1<<30), rng.Int64N(1<<20), 1+rng.Int64N(1<<20)
		if got, want := mulDiv(time.Duration(d), mul, div, 0), d*mul/div; int64(got) != want {
			t.Fatalf("%d x %d / %d = %d, want %d", d, mul, div, got, want)
		}
		if got, want := mulDiv(time.Duration(d), mul, div, div-1), int64(math.Ceil(float64(d*mul)/float64(div))); div < 1<<3 && int64(got) != want {
			t.Fatalf("%d x %d / %d rounded up = %d, want %d", d, mul, div, got, want)
		}
	}
	if got := mulDiv(math.MaxInt64, 3, 3, 0); got != math.MaxInt64 {
		t.Errorf("a product of more than 64 bits: %d", got)
	}
	if got := mulDiv(math.MaxInt64, 3, 2, 1); got != math.MaxInt64 {
		t.Errorf("a quotient of more than 63 bits: %d", got)
	}
}

// plan is a job of a random scenario, in steps of the model.
type plan struct {
	arrives int
	work    int
	leaves  int // 0: never
}

// simulate plays plans in small steps: the model that is too simple to be wrong. It returns
// the step at which each job's work ended, or -1, the steps of work, and the
// most that were inside. A caller whose job has ended goes at once.
func simulate(capacity int, share bool, plans []plan) (ends []int, work float64, most int) {
	left := make([]float64, len(plans))
	ends = make([]int, len(plans))
	for i, p := range plans {
		left[i], ends[i] = float64(p.work), -1
	}
	gone := func(i, now int) bool { return plans[i].leaves > 0 && now >= plans[i].leaves }
	last := plans[len(plans)-1].arrives
	inside := []int{0}
	for now := 0; len(inside) > 0 || now <= last; now++ {
		inside = inside[:0]
		for i, p := range plans {
			if p.arrives <= now && ends[i] < 0 && (share || !gone(i, now)) {
				inside = append(inside, i)
			}
		}
		most = max(most, len(inside))
		served := inside
		if !share {
			served = inside[:min(capacity, len(inside))]
		}
		for _, i := range served {
			step := min(1, float64(capacity)/float64(len(served)))
			step = min(step, left[i])
			left[i] -= step
			work += step
			if left[i] < 1e-9 {
				ends[i] = now + 1
			}
		}
	}
	return ends, work, most
}

func TestAgainstTheModel(t *testing.T) {
	for seed := range uint64(60) {
		for _, share := range []bool{false, true} {
			t.Run(fmt.Sprintf("share=%v/seed=%d", share, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				capacity := 1 + rng.IntN(4)
				plans := make([]plan, 1+rng.IntN(12))
				arrives := 0
				for i := range plans {
					arrives += rng.IntN(1500)
					plans[i] = plan{arrives: arrives, work: 500 + rng.IntN(3000)}
					if rng.IntN(3) == 0 {
						plans[i].leaves = arrives + 1 + rng.IntN(4000)
					}
				}
				synctest.Test(t, func(t *testing.T) { play(t, capacity, share, plans) })
			})
		}
	}
}

// play runs plans on a station, a step being a microsecond, and compares with the model.
func play(t *testing.T, capacity int, share bool, plans []plan) {
	t.Helper()
	c := Config{Capacity: capacity, Service: time.Second}
	if share {
		c.Discipline = Share
	}
	s := open(t, c)
	began := time.Now()
	at := func(step int) time.Duration { return time.Until(began.Add(time.Duration(step) * time.Microsecond)) }
	ended := make([]float64, len(plans)) // in steps
	var all sync.WaitGroup
	for i, p := range plans {
		time.Sleep(at(p.arrives))
		j := enter(t, s)
		s.setWork(j, time.Duration(p.work)*time.Microsecond)
		all.Go(func() {
			defer j.Leave()
			ctx := t.Context()
			if p.leaves > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, at(p.leaves))
				defer cancel()
			}
			ended[i] = -1
			if j.Await(ctx, j.Work()) == nil {
				ended[i] = float64(time.Since(began)) / 1e3
				j.Answer()
			}
		})
	}
	all.Wait()
	for s.Stats().Serving > 0 {
		time.Sleep(time.Millisecond)
	}
	ends, work, most := simulate(capacity, share, plans)
	// The model rounds every end up to a step, and so delays who comes after.
	slack := float64(2 * len(plans))
	completed := int64(0)
	for i, p := range plans {
		margin := math.Abs(float64(p.leaves - ends[i]))
		if p.leaves > 0 && margin <= slack {
			continue // the model cannot tell which came first
		}
		want := float64(ends[i])
		if p.leaves > 0 && p.leaves < ends[i] {
			want = -1 // worked on, but nobody was there
		}
		if want >= 0 {
			completed++
		}
		if math.Abs(ended[i]-want) > slack {
			t.Errorf("job %d %+v ended at %v, in the model at %v", i, p, ended[i], want)
		}
	}
	st := s.Stats()
	law(t, st)
	if st.Completed < completed || st.Concurrent != 0 || st.MaxConcurrent < most-1 || st.MaxConcurrent > most+1 {
		t.Errorf("%+v; in the model %d completed, at most %d inside", st, completed, most)
	}
	if math.Abs(float64(st.Work)/1e3-work) > slack {
		t.Errorf("work %v, in the model %v us", st.Work, work)
	}
}

// setWork replaces the draw of a job that has just come in.
func (s *Station) setWork(j *Job, work time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.work = work
	if j.finish != nil {
		s.events.cancel(j.finish)
		j.finish = &event{at: j.start + work, job: j}
		s.events.schedule(j.finish)
	}
	s.rearmLocked()
}

// Whatever comes together, the books close: run with the race detector.
func TestManyAtOnce(t *testing.T) {
	for _, d := range []Discipline{Queue, Share, Refuse} {
		s := open(t, Config{Capacity: 4, Discipline: d, Service: 200 * time.Microsecond, Jitter: 1})
		var all sync.WaitGroup
		for g := range 32 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 0))
				for range 50 {
					j, err := s.Enter()
					if err != nil {
						continue
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3000))*time.Microsecond)
					if j.Await(ctx, j.Work()/2) == nil && j.Await(ctx, j.Work()) == nil {
						j.Answer()
					}
					j.Leave()
					cancel()
				}
			})
		}
		all.Wait()
		drained := time.Now().Add(30 * time.Second)
		for s.Stats().Serving > 0 && time.Now().Before(drained) {
			time.Sleep(time.Millisecond)
		}
		st := s.Stats()
		law(t, st)
		if st.Concurrent != 0 || st.Waiting != 0 || st.Serving != 0 || st.Started+st.Refused != 32*50 || len(s.events.heap) != 0 {
			t.Errorf("discipline %d: %+v, %d events left", d, st, len(s.events.heap))
		}
	}
}
