package inflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// user asks for slots in every way that there is, and now and then behaves badly.
type user struct {
	t   *testing.T
	l   *Limiter
	rnd *rand.Rand
	wg  *sync.WaitGroup
}

func (u user) request() gate.Request {
	return gate.Request{
		Lane: fmt.Sprint("lane ", u.rnd.IntN(6)), Class: gate.Class(u.rnd.IntN(5)), // 0 and 4 are no classes
		Flow: fmt.Sprint(u.rnd.IntN(3)), Weight: u.rnd.IntN(3), Retry: u.rnd.IntN(20) == 0,
	}
}

// linger lets others run, so that slots overlap.
func (u user) linger() {
	for range u.rnd.IntN(6) {
		runtime.Gosched()
	}
}

// hold keeps a lease for a while and gives it back, sometimes twice and from two sides.
func (u user) hold(ctx context.Context, lease gate.Lease, err error) {
	if rej := (*gate.Rejection)(nil); err != nil && !errors.As(err, &rej) {
		u.t.Errorf("an error that is no rejection: %v", err)
	}
	u.linger()
	if u.rnd.IntN(4) == 0 {
		gate.Observe(lease.In(ctx, u.l), gate.Sample{Status: 200 + u.rnd.IntN(400), FirstByte: time.Millisecond})
	}
	if u.rnd.IntN(4) == 0 {
		u.wg.Go(lease.Release)
	}
	lease.Release()
}

// once makes one call.
func (u user) once() {
	ctx := gate.WithClass(context.Background(), classOf(u.rnd.IntN(3)))
	switch u.rnd.IntN(4) {
	case 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(u.rnd.IntN(3000))*time.Microsecond)
		defer cancel()
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		n := u.rnd.IntN(20)
		u.wg.Go(func() {
			for range n {
				runtime.Gosched()
			}
			cancel()
		})
	}
	switch r := u.request(); u.rnd.IntN(4) {
	case 0:
		lease, err := u.l.Acquire(ctx, r)
		u.hold(ctx, lease, err)
	case 1:
		call := WithCall(ctx)
		for range 3 {
			lease, err := u.l.Acquire(call, r)
			u.hold(call, lease, err)
		}
	case 2:
		_ = u.l.Do(ctx, r.Lane, func(ctx context.Context) error { return u.within(ctx, r) })
	case 3: // its goroutine may not return
		other := user{u.t, u.l, rand.New(rand.NewPCG(u.rnd.Uint64(), 1)), u.wg}
		u.wg.Go(func() {
			defer func() { _ = recover() }()
			_ = other.l.Do(WithCall(ctx), r.Lane, func(ctx context.Context) error {
				_ = other.within(ctx, r)
				if other.rnd.IntN(2) == 0 {
					runtime.Goexit()
				}
				panic("boom")
			})
		})
	}
}

// within is what goes on below Do: several goroutines want its slot.
func (u user) within(ctx context.Context, r gate.Request) error {
	if u.rnd.IntN(3) == 0 {
		return u.l.Do(ctx, r.Lane, func(context.Context) error { u.linger(); return nil })
	}
	for range u.rnd.IntN(3) {
		u.wg.Go(func() {
			if lease, err := u.l.Acquire(ctx, r); err == nil {
				runtime.Gosched()
				lease.Release()
			}
		})
	}
	u.linger()
	return nil
}

// meddle changes the limiter in one way.
func meddle(t *testing.T, l *Limiter, rnd *rand.Rand) {
	lane := fmt.Sprint("lane ", rnd.IntN(6))
	switch rnd.IntN(6) {
	case 0, 1:
		c := l.set.Load().clone()
		c.Mode = []gate.Mode{gate.Off, gate.Shadow, gate.Enforce, gate.Enforce}[rnd.IntN(4)]
		c.MaxInflight, c.InteractiveReserve, c.MaxQueue = rnd.IntN(4), rnd.IntN(3), rnd.IntN(30)
		c.QueueTimeout = time.Duration(rnd.IntN(5)) * time.Millisecond
		c.AgingStep = time.Duration(rnd.IntN(3)) * time.Millisecond
		c.MaxLanes = 3 + rnd.IntN(3)
		if err := l.Reconfigure(c); err != nil {
			t.Error(err)
		}
	case 2:
		_ = l.SetLimit(lane, rnd.IntN(5)-1) // it may be for one lane too many
	case 3:
		l.Pause(lane, time.Duration(rnd.IntN(2000))*time.Microsecond)
	case 4:
		if _, err := json.Marshal(l.Snapshot()); err != nil {
			t.Error(err)
		}
	case 5:
		stop := l.Watch(func(d Demand) { _ = l.SetLimit(d.Lane, d.Held+d.Waiting) })
		runtime.Gosched()
		stop()
	}
}

// Callers of all kinds, in lanes that come and go, while everything that can be changed
// is: afterwards every count is 0, watchers know, and there are as many slots as the
// configuration says.
func TestStressOfEverything(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxLanes = 2, 3 })
	var heard told
	l.Watch(heard.hear)
	var users, meddlers sync.WaitGroup
	over := make(chan struct{})
	for g := range 3 {
		meddlers.Go(func() {
			rnd := rand.New(rand.NewPCG(11, uint64(g)))
			for {
				select {
				case <-over:
					return
				default:
					meddle(t, l, rnd)
					runtime.Gosched()
				}
			}
		})
	}
	for g := range 24 {
		users.Go(func() {
			u := user{t, l, rand.New(rand.NewPCG(5, uint64(g))), &users}
			for range 300 {
				u.once()
			}
		})
	}
	users.Wait()
	close(over)
	meddlers.Wait()
	wantIdle(t, l)
	for until := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		wrong := ""
		for _, s := range l.Snapshot().Lanes {
			if d := heard.of(s.Lane); d.Held != 0 || d.Waiting != 0 {
				wrong = fmt.Sprintf("the last that is heard of %s is %+v", s.Lane, d)
			}
		}
		if wrong == "" {
			break
		}
		if time.Now().After(until) {
			t.Error(wrong)
			break
		}
	}
	const slots = 3
	for i := range 6 { // whatever was set or paused, from here on
		if err := l.SetLimit(fmt.Sprint("lane ", i), Inherit); err != nil {
			t.Error(err)
		}
	}
	reload(t, l, func(c *Config) { c.Mode = gate.Off })
	reload(t, l, func(c *Config) {
		*c = DefaultConfig()
		c.MaxInflight, c.InteractiveReserve, c.MaxQueue, c.MaxLanes = slots, 0, 0, 10
	})
	for i := range 6 {
		r := gate.Request{Lane: fmt.Sprint("lane ", i), Class: classOf(i % 3)}
		for n := range slots + 1 {
			lease, err := l.Acquire(context.Background(), r)
			defer lease.Release()
			if (err == nil) != (n < slots) {
				t.Errorf("%s: slot %d: %v", r.Lane, n, err)
			}
		}
	}
}

// Close at any moment: whoever asks has an answer, and what is held comes back.
func TestStressOfClose(t *testing.T) {
	for round := range 40 {
		l := open(t, func(c *Config) { c.MaxInflight, c.MaxLanes = 2, 3 })
		l.Watch(func(Demand) {})
		var users sync.WaitGroup
		for g := range 8 {
			users.Go(func() {
				u := user{t, l, rand.New(rand.NewPCG(uint64(round), uint64(g))), &users}
				for range 20 {
					u.once()
				}
			})
		}
		users.Go(func() {
			for range round * 20 {
				runtime.Gosched()
			}
			l.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := l.Drain(ctx); err != nil {
				t.Error(err)
			}
			if _, err := l.Acquire(context.Background(), gate.Request{Lane: "lane 1"}); !errors.Is(err, gate.ShuttingDown) {
				t.Errorf("after Close: %v", err)
			}
		})
		users.Wait()
		wantIdle(t, l)
	}
}
