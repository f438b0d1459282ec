package inflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func noMap() map[string]int { return nil }

// F1, F2, F4, F22, F19: however a call ends below Do, its slot is back, once, and what
// it ended with goes on unchanged. What asks below it may have the slot or not.
func TestF2EveryEnd(t *testing.T) {
	boom := errors.New("boom")
	ends := map[string]func() error{
		"error":      func() error { return boom },
		"string":     func() error { panic("boom") },
		"error ends": func() error { panic(boom) },
		"abort":      func() error { panic(http.ErrAbortHandler) },
		"nil map":    func() error { noMap()["a"]++; return nil },
		"goexit":     func() error { runtime.Goexit(); return nil },
	}
	for name, end := range ends {
		for _, adopts := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", adopts), func(t *testing.T) {
				l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = 2, 0 })
				var want, got any
				func() { // what it ends with where nobody is in between
					defer func() { want = recover() }()
					if name != "goexit" {
						_ = end()
					}
				}()
				for range 10 {
					var wg sync.WaitGroup
					wg.Go(func() {
						defer func() { got = recover() }()
						err := l.Do(context.Background(), llm, func(ctx context.Context) error {
							if adopts {
								lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
								if err != nil {
									t.Error(err)
								}
								defer lease.Release()
								defer lease.Release() // twice
							}
							return end()
						})
						if err != boom {
							t.Errorf("Do = %v", err)
						}
					})
					wg.Wait()
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("it ended with %v, want %v", got, want)
					}
				}
				wantIdle(t, l)
				if s := state(t, l); s.Granted != 10 {
					t.Errorf("%d grants, want 10", s.Granted)
				}
				a, b := take(t, l, gate.Interactive), take(t, l, gate.Interactive)
				a.Release()
				b.Release()
			})
		}
	}
}

// F3: a stream that is given up gives its slot to the next call at once.
func TestF3StreamGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue = 0 })
		defer l.Close()
		ctx, cancel := context.WithCancel(context.Background())
		stream := take(t, l, gate.Default)
		go func() {
			defer stream.Release()
			for {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return
				}
			}
		}()
		time.Sleep(200 * time.Millisecond)
		cancel()
		time.Sleep(200 * time.Millisecond)
		take(t, l, gate.Default).Release()
		wantIdle(t, l)
	})
}

// F6, F7: calls that all end by their context leave nothing behind; giving a slot back
// asks for no context.
func TestF6UpstreamTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.QueueTimeout = 10, 0, time.Hour })
		defer l.Close()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				err := l.Do(context.Background(), llm, func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
					if err != nil {
						return err
					}
					<-ctx.Done() // the back end never answers
					defer lease.Release()
					return ctx.Err()
				})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		wg.Wait()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("50 calls of 1 s in 10 slots took %v", took)
		}
		wantIdle(t, l)
	})
}

// F10, F12: a call that gives its slot back early is not in flight any more, and its
// later release is nothing. A session holds a slot during its turns only.
func TestF10EarlyRelease(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.MaxQueue = 10, 0, 0 })
	var watches []gate.Lease
	for range 50 {
		lease := take(t, l, gate.Default)
		lease.Release() // initialised
		watches = append(watches, lease)
	}
	if s := state(t, l); s.Inflight != 0 {
		t.Errorf("%d in flight", s.Inflight)
	}
	var others []gate.Lease
	for range 10 {
		others = append(others, take(t, l, gate.Default))
	}
	for _, lease := range watches {
		lease.Release()
	}
	if s := state(t, l); s.Inflight != 10 {
		t.Errorf("%d in flight, want the 10 that others hold", s.Inflight)
	}
	for _, lease := range others {
		lease.Release()
	}
	for turn := range 3 {
		if err := l.Do(context.Background(), llm, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if s := state(t, l); s.Inflight != 0 {
			t.Errorf("%d in flight after turn %d", s.Inflight, turn)
		}
	}
}

// F14: a call that works on after its caller was answered holds its slot until it ends.
func TestF14WorkAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue = 0 })
		defer l.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		go func() {
			defer func() { _ = recover() }()
			_ = l.Do(ctx, llm, func(context.Context) error { time.Sleep(time.Second); panic("late") })
		}()
		<-ctx.Done()
		synctest.Wait()
		if _, err := l.Acquire(context.Background(), gate.Request{Lane: llm}); !errors.Is(err, gate.QueueFull) {
			t.Errorf("while it works: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		take(t, l, gate.Default).Release()
		wantIdle(t, l)
	})
}

// F21: Close refuses who waits at once, leaves who holds a slot alone, and Drain waits
// for them as long as it is told to. Afterwards no goroutine is left: the bubble ends.
func TestF21CloseWithStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 2, 0 })
		l.Watch(func(Demand) {})
		a, b := take(t, l, gate.Default), take(t, l, gate.Default)
		c := newCrowd(t, l)
		c.ask("w", context.Background(), gate.Request{})
		l.Close()
		synctest.Wait()
		if rej := c.wantErr("w", gate.ShuttingDown); rej.Status() != 503 || rej.RetryAfter <= 0 {
			t.Errorf("%+v", rej)
		}
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Drain(grace); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v while streams go on", err)
		}
		if !a.Live() || !b.Live() {
			t.Error("Close has cut a stream")
		}
		a.Release()
		b.Release()
		if err := l.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		wantIdle(t, l)
	})
}
