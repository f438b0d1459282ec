package inflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// W1 of the earlier limiter: the queue is bounded in length, in every class.
func TestW1QueueLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue = 10 })
		defer l.Close()
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		for i := range 60 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{Class: classOf(2 - i/20)})
			if s := state(t, l); s.Queued > 10 {
				t.Fatalf("%d queued", s.Queued)
			}
		}
		s := state(t, l)
		if s.QueuedByPriority != (ByClass{Interactive: 10}) || s.ShedReasons[gate.Displaced] != 20 || s.ShedReasons[gate.QueueFull] != 30 {
			t.Errorf("queued %+v, sheds %v", s.QueuedByPriority, s.ShedReasons)
		}
		held.Release()
		synctest.Wait()
		c.finish()
		wantIdle(t, l)
	})
}

// W4: a slot that the reserve keeps free from bulk work is said to be no way out: the lane
// is saturated and its queue is local. The next bulk call is the next to get one (W7).
func TestW4ReservedSlotIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.SlowWait = 2, 1, time.Hour })
		defer l.Close()
		c, bulk := newCrowd(t, l), gate.WithClass(context.Background(), gate.Bulk)
		c.ask("a", bulk, gate.Request{})
		c.ask("b", bulk, gate.Request{})
		time.Sleep(time.Second)
		c.ask("c", bulk, gate.Request{})
		time.Sleep(59 * time.Second)
		if s := state(t, l); s.Inflight != 1 || !s.Saturated || s.Verdict != LocalQueue {
			t.Errorf("%d in flight, saturated %v, %s", s.Inflight, s.Saturated, s.Verdict)
		}
		time.Sleep(240 * time.Second)
		synctest.Wait()
		if rej := c.wantErr("b", gate.QueueTimeout); rej.Position != 1 {
			t.Errorf("position %d, want 1: it would have been the next", rej.Position)
		}
		c.finish()
	})
}

// W8: who times out is counted once, everywhere.
func TestW8OneTimeoutIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		c.ask("w", context.Background(), gate.Request{})
		time.Sleep(300 * time.Second)
		synctest.Wait()
		c.wantErr("w", gate.QueueTimeout)
		s := state(t, l)
		if s.QueueTimeouts != 1 || s.Sheds != 1 || s.ShedReasons[gate.QueueTimeout] != 1 || s.Granted != 1 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		if total := l.find(llm).q.Waits().Total[1]; total.Sum != 300*time.Second {
			t.Errorf("waits of %v in all", total.Sum)
		}
		held.Release()
	})
}

// W9: two limiters of one process have nothing in common.
func TestW9LimitersAreApart(t *testing.T) {
	a := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = 1, 0 })
	b := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = 2, 0 })
	if err := a.SetLimit(llm, 1); err != nil {
		t.Fatal(err)
	}
	for l, want := range map[*Limiter]int{a: 1, b: 2} {
		n := 0
		for range 4 {
			if lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm, Class: gate.Interactive}); err == nil {
				defer lease.Release()
				n++
			}
		}
		if n != want {
			t.Errorf("%d slots, want %d", n, want)
		}
	}
}

// A lane that is full all the time has one verdict, however fast slots change hands: a
// slot that is just being handed on is not free.
func TestVerdictOfAFullLaneIsSteady(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.SlowWait = 4, 0, time.Nanosecond })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					lease := take(t, l, gate.Bulk)
					runtime.Gosched()
					lease.Release()
				}
			}
		})
	}
	ln := l.find(llm)
	c := *l.set.Load()
	c.SlowWait = time.Hour
	for looks := 0; looks < 1000; {
		s := ln.snapshot(&c, time.Now())
		if s.Queued == 0 {
			continue
		}
		looks++
		e := evidence{queued: s.Queued, queuedFor: saturatedAfter, room: ln.hasRoom(ln.q.Snapshot()), slow: c.SlowWait}
		if v := e.verdict(); v != LocalQueue {
			t.Fatalf("look %d: %s", looks, v)
		}
	}
	close(stop)
	wg.Wait()
}

// In a pause a slot may be free for those who wait: their queue is the back end's doing.
func TestVerdictOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.SlowWait = time.Hour })
		defer l.Close()
		c := newCrowd(t, l)
		l.Pause(llm, time.Minute)
		c.ask("a", context.Background(), gate.Request{})
		time.Sleep(30 * time.Second)
		l.Pause(llm, time.Minute)
		time.Sleep(30 * time.Second)
		if s := state(t, l); !s.Saturated || s.Verdict != Busy || s.PausedS != 30 {
			t.Errorf("saturated %v, %s, paused for %v s", s.Saturated, s.Verdict, s.PausedS)
		}
		time.Sleep(30*time.Second - time.Nanosecond)
		synctest.Wait()
		c.wantOrder()
		time.Sleep(time.Nanosecond) // the pause ends at the tick
		synctest.Wait()
		c.wantOrder("a")
		c.finish()
	})
}

// In shadow mode a snapshot is that of the books: no more in flight than the limit says,
// each in its class, and what is refused or waits there is not.
func TestShadowSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) {
			c.Mode, c.MaxInflight, c.InteractiveReserve, c.MaxQueue = gate.Shadow, 2, 0, 1
		})
		defer l.Close()
		var heard told
		l.Watch(heard.hear)
		c := newCrowd(t, l)
		for i := range 6 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{Class: gate.Bulk})
		}
		s := state(t, l)
		if s.Inflight != 2 || s.InflightByPriority != (ByClass{Bulk: 2}) || s.QueuedByPriority != (ByClass{Bulk: 1}) {
			t.Errorf("%d in flight, %+v, queued %+v", s.Inflight, s.InflightByPriority, s.QueuedByPriority)
		}
		if d := heard.of(llm); d != (Demand{llm, 2, 1, gate.Bulk}) {
			t.Errorf("heard %+v", d)
		}
		reload(t, l, func(c *Config) { c.Mode = gate.Enforce })
		if now := state(t, l); now.Inflight != 2 || now.Queued != 1 {
			t.Errorf("%d in flight and %d queued in the mode after it", now.Inflight, now.Queued)
		}
		c.finish()
		wantIdle(t, l)
		if s.WouldAdmit != 2 || s.WouldQueue != 1 || s.WouldRefuse != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// What is said of the last minute goes by the time that passes, whatever is done to the
// wall clock: the times that it is reckoned from have their monotonic reading.
func TestAnswersGoByTheTimeThatPasses(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 3 })
	lease := take(t, l, gate.Default)
	gate.Observe(lease.In(context.Background(), l), gate.Sample{Status: 500})
	lease.Release()
	a := &l.find(llm).answers
	if epoch := a.win.epoch; !strings.Contains(epoch.String(), " m=") {
		t.Errorf("the epoch %v has no monotonic reading", epoch)
	}
	now := a.win.epoch.Add(59 * time.Second)
	if _, bad := a.lastMinute(now); bad != 1 {
		t.Errorf("%d bad answers after 59 s, want 1", bad)
	}
	a.observe(now.Add(-time.Hour), gate.Sample{Status: 500}, true) // cannot be; it counts as of now
	if all, bad := a.lastMinute(now); all != 2 || bad != 2 {
		t.Errorf("%d of %d", bad, all)
	}
	if all, bad := a.lastMinute(now.Add(time.Minute)); all != 0 || bad != 0 {
		t.Errorf("%d of %d a minute later", bad, all)
	}
}

// The names in the JSON of a snapshot, all of them: other programs read them.
func TestSnapshotNames(t *testing.T) {
	l := open(t, nil)
	defer take(t, l, gate.Default).Release()
	b, err := json.Marshal(l.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]json.RawMessage
	var lanes []map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(b, &s), json.Unmarshal(s["lanes"], &lanes)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ got, want any }{
		{slices.Sorted(maps.Keys(s)), "[enabled generated_at lanes mode]"},
		{slices.Sorted(maps.Keys(lanes[0])), "[canceled_total granted_total inflight inflight_by_priority lane limit oldest_wait_s paused_s " +
			"queue_timeouts_5m queued queued_by_priority repeat_sheds_total reserve retries_total saturated shed_total sheds_by_reason " +
			"verdict wait_p50_s_5m wait_p90_s_5m would_admit_total would_queue_total would_refuse_total]"},
	} {
		if fmt.Sprint(x.got) != x.want {
			t.Errorf("names %v, want %v", x.got, x.want)
		}
	}
	for name, kind := range map[string]string{ // of numbers that are 0, too
		"sheds_by_reason": "{}", "queued_by_priority": `{"interactive":0,"default":0,"bulk":0}`, "oldest_wait_s": "0", "saturated": "false", "verdict": `"busy"`,
	} {
		if got := string(lanes[0][name]); got != kind {
			t.Errorf("%s is %s, want %s", name, got, kind)
		}
	}
}

// Keys: what canonical returns it leaves alone, so that a lane can be named by what a
// snapshot, a refusal or a watcher calls it; and no password is in any of those.
func TestKeysThatAreShown(t *testing.T) {
	const secret = "hunter2"
	for _, key := range []string{
		"", "default", "other", strings.Repeat("\xffa", 256), strings.Repeat("\xff", 5000), strings.Repeat("é", 400), strings.Repeat("a", 64<<10),
		"https://u:" + secret + "@host/v1|m", "https://" + secret + "@host|m@v2", "https://u:" + secret + "@a@host", "x|https://u:" + secret + "@host#f",
	} {
		l := open(t, func(c *Config) { c.MaxQueue, c.MaxLanes = 0, 4 })
		held, err := l.Acquire(context.Background(), gate.Request{Lane: key})
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(context.Background(), gate.Request{Lane: key})
		rej := (*gate.Rejection)(nil)
		if !errors.As(err, &rej) {
			t.Fatalf("%.30q: %v", key, err)
		}
		b, _ := json.Marshal(l.Snapshot())
		if text := err.Error() + string(b); strings.Contains(text, secret) {
			t.Errorf("the password is in %s", text)
		}
		if len(rej.Lane) > maxKey || canonical(rej.Lane) != rej.Lane || rej.Lane != l.Snapshot().Lanes[0].Lane {
			t.Errorf("%.30q is shown as %.90q of %d bytes", key, rej.Lane, len(rej.Lane))
		}
		if err := l.SetLimit(rej.Lane, 2); err != nil {
			t.Fatal(err)
		}
		second, err := l.Acquire(context.Background(), gate.Request{Lane: key, Class: gate.Interactive})
		if err != nil {
			t.Errorf("%.30q: its limit was not raised by the name that is shown: %v", key, err)
		}
		second.Release()
		held.Release()
		c := DefaultConfig()
		c.Lanes = map[string]Override{key: {}}
		if err := c.Validate(); (err == nil) != (key != "" && canonical(key) == key) || err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%.30q in Config.Lanes: %v", key, err)
		}
	}
}
