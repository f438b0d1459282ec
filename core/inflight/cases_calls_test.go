package inflight

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// W15 of the earlier limiter, trap 43: however many goroutines want the slot of a Do,
// one has it. The others ask for themselves.
func TestW15OneTakesTheSlot(t *testing.T) {
	const goroutines = 50
	l := open(t, func(c *Config) { c.MaxQueue = 0 })
	var took, refused atomic.Int64
	var wg sync.WaitGroup
	err := l.Do(context.Background(), llm, func(ctx context.Context) error {
		leases := make(chan gate.Lease, goroutines)
		for i := range goroutines {
			wg.Go(func() {
				ctx := ctx
				if i%2 == 0 {
					ctx = WithCall(ctx)
				}
				lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
				if err != nil {
					refused.Add(1)
					return
				}
				took.Add(1)
				leases <- lease // kept: nobody else can have it afterwards
			})
		}
		wg.Wait()
		(<-leases).Release()
		return nil
	})
	if err != nil || took.Load() != 1 || refused.Load() != goroutines-1 {
		t.Errorf("%v: %d took a slot, %d were refused", err, took.Load(), refused.Load())
	}
	wantIdle(t, l)
}

// The slot of a Do goes by the lane, however its key is written.
func TestDoOfOneLaneInTwoSpellings(t *testing.T) {
	for _, keys := range [][2]string{
		{"", "default"}, {"default", ""}, {"\xffa", "\uFFFDa"}, {"https://u:secret@host|m", "https://host|m"},
	} {
		l := open(t, func(c *Config) { c.MaxQueue = 0 })
		err := l.Do(context.Background(), keys[0], func(ctx context.Context) error {
			lease, err := l.Acquire(ctx, gate.Request{Lane: keys[1]})
			lease.Release()
			return err
		})
		if err != nil {
			t.Errorf("%q, then %q: %v", keys[0], keys[1], err)
		}
	}
}

// A Do within a Do whose context is done does not run, and leaves the slot alone.
func TestNestedDoOfADoneContext(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxQueue = 0 })
	err := l.Do(context.Background(), llm, func(ctx context.Context) error {
		done, cancel := context.WithCancel(ctx)
		cancel()
		err := l.Do(done, llm, func(context.Context) error { t.Error("fn runs"); return nil })
		if !errors.Is(err, gate.Canceled) || !errors.Is(err, context.Canceled) {
			t.Errorf("Do = %v", err)
		}
		if _, err := l.Acquire(done, gate.Request{Lane: llm}); !errors.Is(err, gate.Canceled) {
			t.Errorf("Acquire = %v", err)
		}
		return l.Do(ctx, llm, func(context.Context) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
	wantIdle(t, l)
}

// What counts as a retry: asking the same lane again in one call, or saying so. A Do
// and the request that takes its slot are one.
func TestRetriesAreCounted(t *testing.T) {
	background := context.Background()
	acquire := func(l *Limiter, ctx context.Context, r gate.Request) {
		lease, err := l.Acquire(ctx, r)
		if err != nil {
			t.Error(err)
		}
		lease.Release()
	}
	do := func(l *Limiter, ctx context.Context, r ...gate.Request) {
		err := l.Do(ctx, llm, func(ctx context.Context) error {
			for _, r := range r {
				acquire(l, ctx, r)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	plain, again := gate.Request{Lane: llm}, gate.Request{Lane: llm, Retry: true}
	elsewhere := gate.Request{Lane: "elsewhere"}
	for _, tc := range []struct {
		name            string
		run             func(*Limiter)
		want, wantOther int64
	}{
		{"no ticket", func(l *Limiter) { acquire(l, background, plain); acquire(l, background, plain) }, 0, 0},
		{"no ticket, said", func(l *Limiter) { acquire(l, background, plain); acquire(l, background, again) }, 1, 0},
		{"a call", func(l *Limiter) {
			call := WithCall(background)
			acquire(l, call, plain)
			acquire(l, call, plain)
			acquire(l, call, again)
		}, 2, 0},
		{"a Do", func(l *Limiter) { do(l, background, plain) }, 0, 0},
		{"a Do without a request", func(l *Limiter) { do(l, background) }, 0, 0},
		{"the client retries below a Do", func(l *Limiter) { do(l, background, plain, plain, plain) }, 2, 0},
		{"its first says so", func(l *Limiter) { do(l, background, again, plain) }, 2, 0},
		{"Do is retried", func(l *Limiter) {
			call := WithCall(background)
			do(l, call, plain)
			do(l, call, plain)
			do(l, call, again)
		}, 2, 0},
		{"Do is retried, without a request", func(l *Limiter) { call := WithCall(background); do(l, call); do(l, call) }, 1, 0},
		{"the client retries below two Dos", func(l *Limiter) {
			_ = l.Do(background, llm, func(ctx context.Context) error { do(l, ctx, plain, plain); return nil })
		}, 1, 0},
		{"and below a call in a Do", func(l *Limiter) {
			_ = l.Do(background, llm, func(ctx context.Context) error {
				call := WithCall(ctx)
				acquire(l, call, plain)
				acquire(l, call, plain)
				return nil
			})
		}, 1, 0},
		{"another back end is no retry", func(l *Limiter) { do(l, background, plain, elsewhere, elsewhere) }, 0, 1},
		{"two limiters", func(l *Limiter) {
			call, other := WithCall(background), open(t, nil)
			acquire(l, call, plain)
			acquire(other, call, plain)
			if n := state(t, other).Retries; n != 0 {
				t.Errorf("%d retries in the other", n)
			}
		}, 0, 0},
	} {
		l := open(t, func(c *Config) { c.MaxInflight = 4 })
		tc.run(l)
		for _, s := range l.Snapshot().Lanes {
			want := tc.want
			if s.Lane != llm {
				want = tc.wantOther
			}
			if s.Retries != want {
				t.Errorf("%s: %d retries in %s, want %d", tc.name, s.Retries, s.Lane, want)
			}
		}
		wantIdle(t, l)
	}
}

// A refusal that a call remembers is one of limits that are enforced.
func TestRefusalsOfLimitsThatAreGone(t *testing.T) {
	for name, set := range map[string]func(*Config){
		"shadow": func(c *Config) { c.Mode = gate.Shadow },
		"off":    func(c *Config) { c.Mode = gate.Off },
		"max 0":  func(c *Config) { c.MaxInflight = 0 },
	} {
		l := open(t, func(c *Config) { c.MaxQueue = 0 })
		held := take(t, l, gate.Default)
		call := WithCall(context.Background())
		if _, err := l.Acquire(call, gate.Request{Lane: llm}); !errors.Is(err, gate.QueueFull) {
			t.Fatal(err)
		}
		before := l.set.Load().clone()
		reload(t, l, set)
		lease, err := l.Acquire(call, gate.Request{Lane: llm})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		lease.Release()
		held.Release()
		if err := l.Reconfigure(before); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(call, gate.Request{Lane: llm}); !errors.Is(err, gate.QueueFull) {
			t.Errorf("%s and back: %v", name, err)
		}
	}
}

// A refusal says how long the call has stood in queues in all, whatever ended each stay.
func TestWaitedOfAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.QueueTimeout = time.Minute })
		defer l.Close()
		held := take(t, l, gate.Default)
		defer held.Release()
		call := WithCall(context.Background())
		attempt, cancel := context.WithTimeout(call, 20*time.Second)
		defer cancel()
		for _, want := range []struct {
			ctx    context.Context
			reason gate.Reason
			waited time.Duration
		}{{attempt, gate.Deadline, 20 * time.Second}, {call, gate.QueueTimeout, time.Minute}} {
			_, err := l.Acquire(want.ctx, gate.Request{Lane: llm})
			rej := (*gate.Rejection)(nil)
			if !errors.As(err, &rej) || rej.Reason != want.reason || rej.Waited != want.waited {
				t.Errorf("%v, want %s after %v", err, want.reason, want.waited)
			}
		}
	})
}

// Calls that wait under tickets cost a bounded amount each, their stacks
// excepted, and give all of it back.
func TestMemoryOfTickets(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 goroutines: left out with -short")
	}
	const calls = 10_000
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue, c.QueueTimeout = calls, time.Hour })
		defer l.Close()
		held := take(t, l, gate.Default)
		memory := func() int64 {
			var m runtime.MemStats
			for range 3 {
				runtime.GC()
			}
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go0 := make(chan struct{})
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				<-go0
				if lease, err := l.Acquire(WithCall(ctx), gate.Request{Lane: llm}); err == nil {
					lease.Release()
				}
			})
		}
		synctest.Wait()
		before := memory()
		close(go0)
		synctest.Wait()
		if n := state(t, l).Queued; n != calls {
			t.Fatalf("%d wait", n)
		}
		each := (memory() - before) / calls
		t.Logf("%d bytes for each call that waits under a ticket", each)
		if each > 1024 {
			t.Errorf("%d bytes for each call that waits under a ticket, want at most 1024", each)
		}
		cancel()
		wg.Wait()
		held.Release()
		wantIdle(t, l)
	})
}
