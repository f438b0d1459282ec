package inflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// keys are the lanes of a limiter, as a snapshot shows them.
func keys(l *Limiter) (all []string) {
	for _, s := range l.Snapshot().Lanes {
		all = append(all, s.Lane)
	}
	return all
}

// W12, K7: the key "other" is the overflow lane: no two lanes have one name, and what is
// set for it binds whoever finds no room.
func TestW12TheLaneOther(t *testing.T) {
	l := open(t, func(c *Config) {
		c.MaxInflight, c.MaxLanes, c.MaxQueue = 5, 1, 0
		c.Lanes = map[string]Override{other: {MaxInflight: ptr(2)}}
	})
	ask := func(key string, want error) {
		t.Helper()
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: key, Class: gate.Interactive})
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", key, err, want)
		}
		t.Cleanup(lease.Release)
	}
	ask(other, nil) // it is there before any other is
	ask("a", nil)
	ask("no room for this", nil)
	ask("nor for this", gate.QueueFull)
	ask(other, gate.QueueFull)
	if got := keys(l); !slices.Equal(got, []string{"a", other}) {
		t.Errorf("lanes %v", got)
	}
	if err := l.SetLimit(other, 3); err != nil {
		t.Fatal(err)
	}
	ask("now there is", nil)
	ask(other, gate.QueueFull)
}

// A lane whose back end has asked for a pause does not lose it to keys that others ask
// for.
func TestPausedLanesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxLanes = 2 })
		defer l.Close()
		l.Pause(llm, time.Minute)
		for i := range 10 {
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("key ", i)})
			if err != nil {
				t.Fatal(err)
			}
			lease.Release()
		}
		c := newCrowd(t, l)
		c.ask("a", context.Background(), gate.Request{})
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		c.wantOrder()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		c.wantOrder("a")
		c.finish()
		for i := range 10 { // it is over: the lane may go
			lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("key ", i)})
			if err != nil {
				t.Fatal(err)
			}
			lease.Release()
		}
		if slices.Contains(keys(l), llm) {
			t.Error("the lane stays though it is idle")
		}
	})
}

// A pause ends with the limit or its enforcement: nothing that is off keeps anybody waiting.
func TestPauseEndsWithTheLimit(t *testing.T) {
	for name, off := range map[string]func(t *testing.T, l *Limiter){
		"SetLimit 0": func(t *testing.T, l *Limiter) {
			if err := l.SetLimit(llm, 0); err != nil {
				t.Error(err)
			}
		},
		"MaxInflight 0": func(t *testing.T, l *Limiter) { reload(t, l, func(c *Config) { c.MaxInflight = 0 }) },
		"override 0": func(t *testing.T, l *Limiter) {
			reload(t, l, func(c *Config) { c.Lanes = map[string]Override{llm: {MaxInflight: ptr(0)}} })
		},
		"mode off":    func(t *testing.T, l *Limiter) { reload(t, l, func(c *Config) { c.Mode = gate.Off }) },
		"mode shadow": func(t *testing.T, l *Limiter) { reload(t, l, func(c *Config) { c.Mode = gate.Shadow }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, nil)
				defer l.Close()
				c, ctx := newCrowd(t, l), context.Background()
				l.Pause(llm, time.Minute)
				c.ask("waits", ctx, gate.Request{Class: gate.Bulk})
				off(t, l)
				synctest.Wait()
				l.Pause(llm, time.Minute) // does nothing any more
				c.ask("comes", ctx, gate.Request{Class: gate.Bulk})
				c.wantOrder("waits", "comes")
				if s := state(t, l); s.PausedS != 0 {
					t.Errorf("paused for %v s", s.PausedS)
				}
				c.finish()
			})
		})
	}
	l := open(t, func(c *Config) { c.MaxInflight = 0 })
	l.Pause("nobody has asked for it", time.Minute)
	if got := keys(l); len(got) != 0 {
		t.Errorf("a pause of nothing has made %v", got)
	}
}

// A watcher that sets a limit each time it is called is not called because of it.
func TestWatcherThatSaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		calls := 0
		l.Watch(func(d Demand) {
			if calls++; calls > 100 {
				return
			}
			if err := l.SetLimit(d.Lane, 3); err != nil {
				t.Error(err)
			}
			if err := l.SetLimit("another", Inherit); err != nil {
				t.Error(err)
			}
		})
		take(t, l, gate.Default).Release()
		synctest.Wait()
		if calls == 0 || calls > 10 {
			t.Errorf("called %d times", calls)
		}
	})
}

// J6: fewer lanes: with the next new one, those that are idle and too many go.
func TestFewerLanes(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxLanes = 100 })
	for i := range 100 {
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: fmt.Sprint("key ", i)})
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			defer lease.Release()
		} else {
			lease.Release()
		}
	}
	reload(t, l, func(c *Config) { c.MaxLanes = 15 })
	take(t, l, gate.Default).Release()
	if n := len(keys(l)); n != 15 {
		t.Errorf("%d lanes, want 15", n)
	}
	reload(t, l, func(c *Config) { c.MaxLanes = 5 }) // 10 are in use
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: "new"})
	if err != nil {
		t.Fatal(err)
	}
	lease.Release()
	if got := keys(l); len(got) != 11 || !slices.Contains(got, other) {
		t.Errorf("%d lanes, want the 10 in use and other: %v", len(got), got)
	}
}

// In shadow mode, too, the last that a watcher hears is how it is: nobody comes back
// from a wait in the books.
func TestWatchInShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.Mode = gate.Shadow })
		defer l.Close()
		var heard told
		l.Watch(heard.hear)
		c := newCrowd(t, l)
		for i := range 4 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{Class: gate.Bulk})
		}
		if d := heard.of(llm); d != (Demand{llm, 1, 3, gate.Bulk}) {
			t.Errorf("heard %+v", d)
		}
		time.Sleep(300 * time.Second) // the queue timeout
		synctest.Wait()
		if d := heard.of(llm); d != (Demand{llm, 1, 0, 0}) {
			t.Errorf("heard %+v, nobody waits any more", d)
		}
		c.finish()
		if d := heard.of(llm); d != (Demand{Lane: llm}) {
			t.Errorf("heard %+v at the end", d)
		}
	})
}

// A back end that fails is to blame in a lane of one slot, too, and in one in which all
// slots are taken and nobody waits; while somebody waits it is not.
func TestVerdictOfALaneOfOne(t *testing.T) {
	for _, limit := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.SlowWait = limit, 0, time.Hour })
			defer l.Close()
			c, fails := newCrowd(t, l), func() {
				for range limit {
					lease := take(t, l, gate.Default)
					defer lease.Release()
					defer gate.Observe(lease.In(context.Background(), l), gate.Sample{Status: 503})
				}
			}
			for range 3 {
				fails()
			}
			if s := state(t, l); s.Verdict != UpstreamDegraded {
				t.Errorf("limit %d: %s", limit, s.Verdict)
			}
			time.Sleep(2 * time.Minute)
			var held []gate.Lease
			for range limit {
				held = append(held, take(t, l, gate.Default))
			}
			c.ask("waits", context.Background(), gate.Request{})
			for range 9 {
				gate.Observe(held[0].In(context.Background(), l), gate.Sample{Status: 503})
			}
			if s := state(t, l); s.Verdict != Busy {
				t.Errorf("limit %d, somebody waits: %s", limit, s.Verdict)
			}
			for _, lease := range held {
				lease.Release()
			}
			synctest.Wait()
			c.finish()
		})
	}
}
