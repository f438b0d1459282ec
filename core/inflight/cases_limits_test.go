package inflight

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// peak counts who is in, and keeps the largest count.
type peak struct{ now, most atomic.Int64 }

func (p *peak) enter() {
	n := p.now.Add(1)
	for m := p.most.Load(); n > m && !p.most.CompareAndSwap(m, n); m = p.most.Load() {
	}
}

func (p *peak) leave() { p.now.Add(-1) }

// D13: 10,000 callers at once, whose calls last, and the reserve as a second rule: as many
// are in flight as may be, in all and of the classes below interactive, and not one more.
func TestD13AsManyAsTheLimit(t *testing.T) {
	const limit, reserve, callers = 100, 10, 10_000
	for round := range 3 {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, func(c *Config) {
				c.MaxInflight, c.InteractiveReserve, c.MaxQueue, c.QueueTimeout = limit, reserve, callers, time.Hour
			})
			defer l.Close()
			var all, lower peak
			var granted atomic.Int64
			var wg sync.WaitGroup
			for i := range callers {
				class := classOf(i % 3)
				wg.Go(func() {
					lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: class})
					if err != nil {
						t.Error(err)
						return
					}
					granted.Add(1)
					all.enter()
					if class != gate.Interactive {
						lower.enter()
					}
					time.Sleep(time.Millisecond + time.Duration(i*round%7)) // not all end at one moment
					if class != gate.Interactive {
						lower.leave()
					}
					all.leave()
					lease.Release()
				})
			}
			wg.Wait()
			if all.most.Load() != limit || lower.most.Load() != limit-reserve || granted.Load() != callers {
				t.Errorf("at most %d in flight, %d of them not interactive, want %d and %d; %d granted",
					all.most.Load(), lower.most.Load(), limit, limit-reserve, granted.Load())
			}
			wantIdle(t, l)
		})
	}
}

// J11: every number below 0 is an error that names its field, in an override too, and
// leaves a limiter as it was.
func TestJ11Negatives(t *testing.T) {
	set := func(f reflect.Value) bool {
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if ok := f.CanInt(); !ok {
			return false
		}
		f.SetInt(-1)
		return true
	}
	wants := func(c Config, field string) {
		t.Helper()
		l := open(t, nil)
		before := l.set.Load()
		if err := l.Reconfigure(c); err == nil || !strings.HasPrefix(err.Error(), "inflight: "+field+" is ") {
			t.Errorf("%s -1: %v", field, err)
		}
		if _, err := New(c); err == nil {
			t.Errorf("New takes a %s of -1", field)
		}
		if l.set.Load() != before {
			t.Errorf("%s -1 has changed the settings", field)
		}
	}
	numbers := 0
	for i := range reflect.TypeFor[Config]().NumField() {
		c := DefaultConfig()
		if set(reflect.ValueOf(&c).Elem().Field(i)) {
			numbers++
			wants(c, reflect.TypeFor[Config]().Field(i).Name)
		}
	}
	for i := range reflect.TypeFor[Override]().NumField() {
		c, o := DefaultConfig(), Override{}
		if !set(reflect.ValueOf(&o).Elem().Field(i)) {
			t.Errorf("%s is no number", reflect.TypeFor[Override]().Field(i).Name)
		}
		c.Lanes = map[string]Override{"a": o}
		wants(c, `Lanes["a"].`+reflect.TypeFor[Override]().Field(i).Name)
	}
	if numbers != 7 {
		t.Errorf("%d numbers in Config, want 7", numbers)
	}
}

// A waiter's time is over at its own deadline or at its arrival plus the new timeout,
// whichever is first.
func TestReloadKeepsCallersDeadlines(t *testing.T) {
	for _, tc := range []struct {
		timeout, ends time.Duration
		want          gate.Reason
	}{
		{5 * time.Minute, 2 * time.Minute, gate.Deadline},
		{90 * time.Second, 90 * time.Second, gate.QueueTimeout},
		{10 * time.Second, 30 * time.Second, gate.QueueTimeout}, // at the reload: it is over
	} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, func(c *Config) { c.QueueTimeout = time.Minute })
			defer l.Close()
			held := take(t, l, gate.Default)
			defer held.Release()
			c := newCrowd(t, l)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			c.ask("w", ctx, gate.Request{})
			time.Sleep(30 * time.Second)
			reload(t, l, func(c *Config) { c.QueueTimeout = tc.timeout })
			if left := tc.ends - 30*time.Second; left > 0 {
				time.Sleep(left - time.Nanosecond)
				synctest.Wait()
				if err := c.err("w"); err != nil {
					t.Errorf("timeout %v: %v a moment early", tc.timeout, err)
				}
				time.Sleep(time.Nanosecond)
			}
			synctest.Wait()
			if rej := c.wantErr("w", tc.want); rej.Waited != tc.ends {
				t.Errorf("timeout %v: waited %v, want %v", tc.timeout, rej.Waited, tc.ends)
			}
		})
	}
}

// A refusal by a limit that was switched off just then is none: the new settings are there
// before every lane goes by them.
func TestRefusalOvertakenByOff(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Off, gate.Shadow} {
		l := open(t, func(c *Config) { c.MaxQueue = 0 })
		held := take(t, l, gate.Default)
		off := l.set.Load().clone()
		off.Mode = mode
		l.mu.Lock()
		l.useLocked(off)
		ln := l.find(llm)
		done := make(chan error)
		go func() {
			// In shadow mode the long way goes by the books, whose word is nobody's refusal.
			r := gate.Request{Lane: llm}
			lease, err := l.wait(context.Background(), nil, &r, index(gate.Default))
			lease.Release()
			done <- err
		}()
		for range 1000 {
			runtime.Gosched()
		}
		l.applyLocked(ln)
		l.mu.Unlock()
		if err := <-done; err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		held.Release()
		wantIdle(t, l)
	}
}

// What a request says of itself wins over its context, whether or not it has to wait; and
// who has more weight has more turns.
func TestRequestWinsAndWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 1, 0 })
		defer l.Close()
		c, bulk := newCrowd(t, l), gate.WithClass(context.Background(), gate.Bulk)
		c.ask("holds", bulk, gate.Request{Class: gate.Interactive})
		if s := state(t, l); s.InflightByPriority != (ByClass{Interactive: 1}) {
			t.Errorf("in flight %+v", s.InflightByPriority)
		}
		c.ask("waits", bulk, gate.Request{Class: gate.Interactive})
		if s := state(t, l); s.QueuedByPriority != (ByClass{Interactive: 1}) {
			t.Errorf("queued %+v", s.QueuedByPriority)
		}
		c.finish()

		c = newCrowd(t, l)
		c.ask("holds", bulk, gate.Request{})
		heavy, light := gate.WithFlow(bulk, "heavy", 3), gate.WithFlow(bulk, "light", 1)
		for i := range 12 {
			c.ask(fmt.Sprint("light ", i), light, gate.Request{})
			c.ask(fmt.Sprint("heavy ", i), heavy, gate.Request{})
		}
		for range 13 {
			order := c.order()
			c.release(order[len(order)-1])
		}
		n := 0
		for _, name := range c.order()[1:13] {
			if strings.HasPrefix(name, "heavy") {
				n++
			}
		}
		if n != 9 {
			t.Errorf("weight 3 beside 1 has %d of 12 turns, want 9: %v", n, c.order())
		}
		c.finish()
	})
}

// A pause is 60 s at most, whatever a back end asks for; one of nothing is none.
func TestPauseHasAnEnd(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		time.Hour: time.Minute, 1<<63 - 1: time.Minute, time.Minute: time.Minute, time.Second: time.Second, 0: 0, -time.Hour: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, nil)
			defer l.Close()
			l.Pause(llm, d)
			began := time.Now()
			take(t, l, gate.Default).Release()
			if waited := time.Since(began); waited != want {
				t.Errorf("a pause of %v lasts %v, want %v", d, waited, want)
			}
		})
	}
}

// Of two idle lanes the one that has been idle for longer makes way.
func TestTheLaneLongIdleMakesWay(t *testing.T) {
	for _, old := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, func(c *Config) { c.MaxLanes = 2 })
			defer l.Close()
			use := func(key string) {
				lease, err := l.Acquire(context.Background(), gate.Request{Lane: key})
				if err != nil {
					t.Fatal(err)
				}
				lease.Release()
			}
			use("a")
			use("b")
			for range 4 { // the other one is in use in every slice
				time.Sleep(sweepEvery - time.Second)
				use(map[string]string{"a": "b", "b": "a"}[old])
				time.Sleep(time.Second)
			}
			synctest.Wait()
			use("c")
			for _, key := range keys(l) {
				if key == old {
					t.Errorf("lanes %v: %s is the one that nobody used", keys(l), old)
				}
			}
		})
	}
}

// A context that is done gets no slot where there is no limit either; shadow mode admits it
// as it does everybody. Nothing of either stays in flight.
func TestDoneContextsByMode(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, set := range map[string]func(*Config){
		"off":    func(c *Config) { c.Mode = gate.Off },
		"max 0":  func(c *Config) { c.MaxInflight = 0 },
		"shadow": func(c *Config) { c.Mode = gate.Shadow },
	} {
		l := open(t, set)
		for range 2 {
			lease, err := l.Acquire(ctx, gate.Request{Lane: llm})
			if admits := name == "shadow"; (err == nil) != admits || !admits && !errors.Is(err, gate.Canceled) || lease.Live() != admits {
				t.Errorf("%s: %v, live %v", name, err, lease.Live())
			}
			lease.Release()
		}
		wantIdle(t, l)
	}
}
