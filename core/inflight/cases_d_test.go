package inflight

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// D9: what is refused here says nothing of the back end: neither of how long calls take
// nor of how it answers.
func TestD9RefusalsAreNoSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue = 0 })
		defer l.Close()
		for range 32 {
			held := take(t, l, gate.Default)
			time.Sleep(10 * time.Second)
			if _, err := l.Acquire(context.Background(), gate.Request{Lane: llm}); !errors.Is(err, gate.QueueFull) {
				t.Fatal(err)
			}
			held.Release()
		}
		q := l.find(llm).q.Snapshot()
		if typical := q.TypicalHold[1]; typical < 6*time.Second || typical > 10*time.Second {
			t.Errorf("a call is taken to last %v, not 10 s", typical)
		}
		if all, bad := l.find(llm).answers.lastMinute(time.Now()); all != 0 || bad != 0 {
			t.Errorf("%d of %d answers are bad: there was none", bad, all)
		}
	})
}

// D9: a call that is retried because it was refused here, or gave up in the queue here,
// is no evidence against the back end. One that got as far is.
func TestD9RetriesOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = 2, 0, 1 })
		defer l.Close()
		a, b := take(t, l, gate.Default), take(t, l, gate.Default)
		c := newCrowd(t, l)
		c.ask("fills the queue", context.Background(), gate.Request{Class: gate.Interactive})
		var refused, gaveUp []context.Context
		for range 9 {
			call := WithCall(context.Background())
			if _, err := l.Acquire(call, gate.Request{Lane: llm}); !errors.Is(err, gate.QueueFull) {
				t.Fatal(err)
			}
			refused = append(refused, call)
		}
		a.Release()
		synctest.Wait()
		for range 9 {
			call := WithCall(context.Background())
			attempt, cancel := context.WithTimeout(call, time.Second)
			if _, err := l.Acquire(attempt, gate.Request{Lane: llm}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			gaveUp = append(gaveUp, call)
		}
		b.Release()
		c.finish()
		for i, call := range append(refused, gaveUp...) {
			lease, err := l.Acquire(call, gate.Request{Lane: llm})
			if (err != nil) != (i < len(refused)) {
				t.Errorf("call %d: %v", i, err)
			}
			lease.Release()
		}
		if s := state(t, l); s.Verdict != Idle || s.Retries != 18 || s.RepeatSheds != 9 {
			t.Errorf("%s, %d retries, %d refused again", s.Verdict, s.Retries, s.RepeatSheds)
		}
		for _, call := range gaveUp {
			lease, err := l.Acquire(call, gate.Request{Lane: llm})
			if err != nil {
				t.Error(err)
			}
			lease.Release()
		}
		if s := state(t, l); s.Verdict != UpstreamDegraded || s.Retries != 27 {
			t.Errorf("%s, %d retries", s.Verdict, s.Retries)
		}
	})
}

// D10: a client that cancels 1000 calls changes neither the limit nor what is said of the
// back end, be it in the queue or in flight.
func TestD10CancelsAreNoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 4, 0 })
		defer l.Close()
		for range 500 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
			if err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			gate.Observe(lease.In(ctx, l), gate.Sample{Err: context.Canceled})
			lease.Release()
			cancel()
		}
		var held []gate.Lease
		for range 4 {
			held = append(held, take(t, l, gate.Default))
		}
		for range 500 {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(10*time.Millisecond, cancel)
			if _, err := l.Acquire(ctx, gate.Request{Lane: llm}); !errors.Is(err, gate.Canceled) {
				t.Fatal(err)
			}
		}
		s := state(t, l)
		if s.Limit != 4 || s.Inflight != 4 || s.Verdict != Busy || s.Sheds != 0 || s.Canceled != 500 {
			t.Errorf("%+v", s)
		}
		for _, lease := range held {
			lease.Release()
		}
		wantIdle(t, l)
	})
}

// D12: with a limit of 1 one of two has a slot. The first request of a key counts (D13).
func TestD12LimitOne(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxQueue = 0 })
	for i := range 100 {
		r := gate.Request{Lane: fmt.Sprint("new ", i)}
		first, err := l.Acquire(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(context.Background(), r); !errors.Is(err, gate.QueueFull) {
			t.Fatalf("the second: %v", err)
		}
		first.Release()
	}
}

// D14, J6: growth lets in all who fit, in the order in which they wait.
func TestD14GrowthLetsInAllWhoFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		held := take(t, l, gate.Default)
		defer held.Release()
		c := newCrowd(t, l)
		var want []string
		for i := range 9 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{})
			if i < 5 {
				want = append(want, fmt.Sprint(i))
			}
		}
		reload(t, l, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 6, 0 })
		synctest.Wait()
		if got := c.order(); len(got) != len(want) { // who runs first of those who are let in is anybody's guess
			t.Errorf("let in %v, want %v", got, want)
		}
		for _, name := range want {
			c.release(name)
		}
		c.finish()
	})
}

// D15, trap 33: a release at the very moment at which the waiter's time is over, many
// times: the slot is never lost, and never given twice.
func TestD15TimeoutAgainstGrant(t *testing.T) {
	times := 100_000
	if testing.Short() || raceEnabled {
		times = 20_000
	}
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.QueueTimeout, c.InteractiveReserve = 10*time.Millisecond, 0 })
		defer l.Close()
		granted, timedOut := 0, 0
		for i := range times {
			held := take(t, l, gate.Default)
			outcome := make(chan error)
			go func() {
				lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm})
				lease.Release()
				outcome <- err
			}()
			synctest.Wait()
			time.Sleep(10*time.Millisecond - time.Duration(i%2)) // at the tick, or just before
			held.Release()
			switch err := <-outcome; {
			case err == nil:
				granted++
			case errors.Is(err, gate.QueueTimeout):
				timedOut++
			default:
				t.Fatal(err)
			}
			if s := l.find(llm).q.Snapshot(); s.Leases != 0 {
				t.Fatalf("round %d: %d slots are held", i, s.Leases)
			}
		}
		if granted < times/2 || granted+timedOut != times {
			t.Errorf("%d granted, %d timed out", granted, timedOut)
		}
		take(t, l, gate.Default).Release()
		wantIdle(t, l)
	})
}

// D16: who waits does nothing. (In a bubble time goes on only when everybody is blocked:
// if anybody polled, this test would hang.) A timeout of 0, or no place to wait in, is an
// answer at once.
func TestD16WaitingIsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		for i := range 50 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{})
		}
		time.Sleep(2 * time.Second)
		held.Release()
		synctest.Wait()
		c.finish()
		if got := len(c.order()); got != 50 {
			t.Errorf("%d granted", got)
		}
	})
	for _, tc := range []struct {
		set  func(*Config)
		want gate.Reason
	}{
		{func(c *Config) { c.QueueTimeout = 0 }, gate.QueueTimeout},
		{func(c *Config) { c.MaxQueue = 0 }, gate.QueueFull},
		{func(c *Config) { c.QueueTimeout, c.MaxQueue = 0, 0 }, gate.QueueTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, tc.set)
			defer l.Close()
			held := take(t, l, gate.Default)
			began := time.Now()
			_, err := l.Acquire(context.Background(), gate.Request{Lane: llm})
			_, under := l.Acquire(WithCall(context.Background()), gate.Request{Lane: llm})
			if !errors.Is(err, tc.want) || !errors.Is(under, tc.want) || time.Since(began) != 0 {
				t.Errorf("%v, %v after %v, want %s at once", err, under, time.Since(began), tc.want)
			}
			held.Release()
			take(t, l, gate.Default).Release() // a slot that is free is given
		})
	}
}
