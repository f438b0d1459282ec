package inflight

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Trap 15, W6 of the earlier limiter: a retry stands where its call stands.
func TestRetryKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		held := take(t, l, gate.Default)
		c, ctx := newCrowd(t, l), context.Background()
		call := WithCall(ctx)
		c.ask("first try", call, gate.Request{})
		time.Sleep(time.Second)
		c.ask("later", ctx, gate.Request{})
		held.Release()
		synctest.Wait()
		c.wantOrder("first try")
		time.Sleep(time.Second)
		c.ask("latest", ctx, gate.Request{})
		c.release("first try") // "later" goes on; the retry comes after its backoff
		c.ask("second try", call, gate.Request{})
		c.release("later")
		c.wantOrder("first try", "later", "second try")
		c.release("second try")
		c.wantOrder("first try", "later", "second try", "latest")
		if s := state(t, l); s.Retries != 1 {
			t.Errorf("%d retries, want 1", s.Retries)
		}
		c.finish()
		wantIdle(t, l)
	})
}

// A call's age counts too: a retry of old bulk work has aged.
func TestRetryKeepsItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		c, ctx := newCrowd(t, l), context.Background()
		call := WithCall(gate.WithClass(ctx, gate.Bulk))
		c.ask("first try", call, gate.Request{})
		time.Sleep(60 * time.Second) // it is served all that time
		c.release("first try")
		held := take(t, l, gate.Default)
		c.ask("fresh", ctx, gate.Request{})
		c.ask("second try", call, gate.Request{})
		held.Release()
		synctest.Wait()
		c.wantOrder("first try", "second try")
		c.finish()
	})
}

// Trap 20, W10 of the earlier limiter: one bound for all waits of a call.
func TestCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.QueueTimeout = time.Minute })
		held := take(t, l, gate.Default)
		c, ctx := newCrowd(t, l), context.Background()
		call := WithCall(ctx)
		c.ask("first try", call, gate.Request{})
		time.Sleep(20 * time.Second)
		held.Release()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		c.release("first try")
		held = take(t, l, gate.Default)
		c.ask("second try", call, gate.Request{})
		time.Sleep(30*time.Second - time.Nanosecond)
		synctest.Wait()
		if err := c.err("second try"); err != nil {
			t.Fatalf("%v a moment early", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if rej := c.wantErr("second try", gate.QueueTimeout); rej.Waited != 50*time.Second {
			t.Errorf("waited %v in all, want 50s", rej.Waited)
		}

		// Its time is over: it may still take what is free, but not wait.
		late := WithCall(ctx)
		held.Release()
		c.ask("late 1", late, gate.Request{})
		time.Sleep(2 * time.Minute)
		c.release("late 1")
		c.ask("late 2", late, gate.Request{})
		c.release("late 2")
		held = take(t, l, gate.Default)
		c.ask("late 3", late, gate.Request{})
		c.wantErr("late 3", gate.QueueTimeout)
		held.Release()
		wantIdle(t, l)
	})
}

// Trap 17: what a lane has refused it refuses again at once, and only that lane.
func TestRefusedIsRefusedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.QueueTimeout = time.Minute })
		held := take(t, l, gate.Default)
		call := WithCall(context.Background())
		_, first := l.Acquire(call, gate.Request{Lane: llm})
		if !errors.Is(first, gate.QueueTimeout) {
			t.Fatal(first)
		}
		held.Release()
		for range 4 {
			began := time.Now()
			_, again := l.Acquire(call, gate.Request{Lane: llm})
			if again != first || time.Since(began) != 0 {
				t.Errorf("%v after %v", again, time.Since(began))
			}
		}
		other, err := l.Acquire(call, gate.Request{Lane: "elsewhere"})
		if err != nil {
			t.Errorf("another lane: %v", err)
		}
		other.Release()
		fresh, err := l.Acquire(WithCall(call), gate.Request{Lane: llm})
		if err != nil {
			t.Errorf("another call: %v", err)
		}
		fresh.Release()
		if s := state(t, l); s.RepeatSheds != 4 || s.Retries != 4 || s.ShedReasons[gate.QueueTimeout] != 1 {
			t.Errorf("%d repeats, %d retries, sheds %v", s.RepeatSheds, s.Retries, s.ShedReasons)
		}
	})
}

// What the caller's own context said is not the lane's word: it may ask again.
func TestCanceledMayAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		held := take(t, l, gate.Default)
		call := WithCall(context.Background())
		attempt, cancel := context.WithTimeout(call, time.Second)
		defer cancel()
		if _, err := l.Acquire(attempt, gate.Request{Lane: llm}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		held.Release()
		lease, err := l.Acquire(call, gate.Request{Lane: llm})
		if err != nil {
			t.Error(err)
		}
		lease.Release()
	})
}

func TestDoHoldsWhatNobodyTakes(t *testing.T) {
	l := open(t, nil)
	boom := errors.New("boom")
	err := l.Do(context.Background(), llm, func(context.Context) error {
		if s := state(t, l); s.Inflight != 1 {
			t.Errorf("%d in flight below Do", s.Inflight)
		}
		return boom
	})
	if err != boom {
		t.Errorf("Do = %v", err)
	}
	wantIdle(t, l)

	func() {
		defer func() {
			if recover() != boom {
				t.Error("the panic is another one")
			}
		}()
		_ = l.Do(context.Background(), llm, func(context.Context) error { panic(boom) })
	}()
	wantIdle(t, l)

	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = l.Do(context.Background(), llm, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-gone
	wantIdle(t, l)
}

// The first Acquire below Do on its lane has its slot, which may outlive it.
func TestDoHandsItsSlotOn(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = 1, 0 })
	var lease gate.Lease
	err := l.Do(context.Background(), llm, func(ctx context.Context) error {
		var err error
		if lease, err = l.Acquire(ctx, gate.Request{Lane: llm}); err != nil {
			return err
		}
		elsewhere, err := l.Acquire(ctx, gate.Request{Lane: "elsewhere"})
		elsewhere.Release()
		return err
	})
	if err != nil || !lease.Live() || state(t, l).Inflight != 1 {
		t.Fatalf("%v, live %v", err, lease.Live())
	}
	lease.Release()
	wantIdle(t, l)

	// Taken once: the next has to ask, and there is no other slot.
	err = l.Do(context.Background(), llm, func(ctx context.Context) error {
		first, err := l.Acquire(ctx, gate.Request{Lane: llm})
		if err != nil {
			return err
		}
		defer first.Release()
		_, err = l.Acquire(ctx, gate.Request{Lane: llm})
		return err
	})
	if !errors.Is(err, gate.QueueFull) && !errors.Is(err, gate.QueueTimeout) {
		t.Errorf("a second slot: %v", err)
	}
	wantIdle(t, l)
}

// Trap 43: a Do within a Do on a lane of one slot does not wait for itself.
func TestDoWithinDo(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = 1, 0 })
	ran := false
	err := l.Do(context.Background(), llm, func(ctx context.Context) error {
		return l.Do(ctx, llm, func(ctx context.Context) error {
			lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
			defer lease.Release()
			ran = err == nil
			return err
		})
	})
	if err != nil || !ran {
		t.Errorf("%v, ran %v", err, ran)
	}
	wantIdle(t, l)
}

// After fn there is nothing to take, whoever still has its context.
func TestDoIsOver(t *testing.T) {
	l := open(t, nil)
	var kept context.Context
	_ = l.Do(context.Background(), llm, func(ctx context.Context) error { kept = ctx; return nil })
	lease, err := l.Acquire(kept, gate.Request{Lane: llm})
	if err != nil || state(t, l).Inflight != 1 {
		t.Fatal(err)
	}
	lease.Release()
	wantIdle(t, l)
}

// Do's slot and ticket are the limiter's own: another one asks for itself.
func TestDoOfAnotherLimiter(t *testing.T) {
	a, b := open(t, nil), open(t, nil)
	_ = a.Do(context.Background(), llm, func(ctx context.Context) error {
		lease, err := b.Acquire(ctx, gate.Request{Lane: llm})
		if err != nil || state(t, b).Inflight != 1 || state(t, a).Inflight != 1 {
			t.Errorf("%v", err)
		}
		lease.Release()
		return nil
	})
	wantIdle(t, a)
	wantIdle(t, b)
}

// Do directly under WithCall is part of that call; below another Do it is its own.
func TestDoAndWithCall(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxQueue = 0 })
	held := take(t, l, gate.Default)
	call := WithCall(context.Background())
	nothing := func(context.Context) error { return nil }
	first := l.Do(call, llm, nothing)
	held.Release()
	if again := l.Do(call, llm, nothing); again != first || first == nil {
		t.Errorf("the same call: %v, then %v", first, again)
	}
	if err := l.Do(context.Background(), "elsewhere", func(ctx context.Context) error {
		held := take(t, l, gate.Default)
		refused := l.Do(ctx, llm, nothing)
		held.Release()
		if refused == nil {
			t.Error("a full lane took it")
		}
		return l.Do(ctx, llm, nothing)
	}); err != nil {
		t.Errorf("the next call in a Do: %v", err)
	}
}

// What the context carries besides is found through a call.
func TestCallIsAContext(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, 1))
	call := WithCall(gate.WithClass(ctx, gate.Bulk))
	if call.Value(key{}) != 1 || gate.ClassOf(call) != gate.Bulk || call.Err() != nil {
		t.Error("the context's own is lost")
	}
	cancel()
	if call.Err() == nil {
		t.Error("it does not end with its parent")
	}
	if callOf(context.WithValue(call, key{}, 2)) == nil {
		t.Error("it is not found from below")
	}
}
