package inflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func TestSnapshotOff(t *testing.T) {
	for name, set := range map[string]func(*Config){
		"no limit": func(c *Config) { c.MaxInflight = 0 },
		"mode off": func(c *Config) { c.Mode = gate.Off },
	} {
		l := open(t, set)
		lease, err := l.Acquire(context.Background(), gate.Request{Lane: llm})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(l.Snapshot())
		if err != nil || string(b) != `{"enabled":false}` {
			t.Errorf("%s: %s, %v", name, b, err)
		}
		lease.Release()
	}
	for name, set := range map[string]func(*Config){
		"an override": func(c *Config) { c.MaxInflight, c.Lanes = 0, map[string]Override{llm: {MaxInflight: ptr(1)}} },
		"shadow":      func(c *Config) { c.Mode = gate.Shadow },
	} {
		if l := open(t, set); !l.Snapshot().Enabled {
			t.Errorf("%s: not enabled", name)
		}
	}
	l := open(t, func(c *Config) { c.MaxInflight = 0 })
	if err := l.SetLimit(llm, 2); err != nil || !l.Snapshot().Enabled {
		t.Errorf("SetLimit: %v, enabled %v", err, l.Snapshot().Enabled)
	}
}

// The names that other programs read.
func TestSnapshotJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 2, 1 })
		defer l.Close()
		c := newCrowd(t, l)
		c.ask("a", context.Background(), gate.Request{Class: gate.Bulk})
		c.ask("b", context.Background(), gate.Request{Class: gate.Bulk})
		time.Sleep(1500 * time.Millisecond)
		b, err := json.Marshal(l.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`{"enabled":true,"generated_at":"`, `"mode":"enforce"`, `"lanes":[{"lane":"` + llm + `","limit":2,"reserve":1,"inflight":1,`,
			`"inflight_by_priority":{"interactive":0,"default":0,"bulk":1},"queued":1,`,
			`"queued_by_priority":{"interactive":0,"default":0,"bulk":1},"oldest_wait_s":1.5,`,
			`"wait_p50_s_5m":`, `"wait_p90_s_5m":`, `"queue_timeouts_5m":0,"saturated":false,"verdict":"busy"`,
		} {
			if !strings.Contains(string(b), want) {
				t.Errorf("no %s in %s", want, b)
			}
		}
		c.finish()
	})
}

// W2 of the earlier limiter: timeouts and those who wait still count.
func TestPercentilesCountAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.QueueTimeout = time.Minute })
		defer l.Close()
		near := func(what string, got secs, want float64) {
			t.Helper()
			if g := float64(got); g < want*0.93-0.1 || g > want*1.07+0.1 {
				t.Errorf("%s is %v, want about %v", what, got, want)
			}
		}
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		for i := range 9 {
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{})
		}
		time.Sleep(30 * time.Second)
		s := state(t, l) // one got it at once, nine wait
		near("p50 of those who wait", s.WaitP50S, 30)
		near("p90 of those who wait", s.WaitP90S, 30)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s = state(t, l)
		near("p50 with timeouts", s.WaitP50S, 60)
		if s.QueueTimeouts != 9 || s.Queued != 0 || s.Verdict != LocalQueue {
			t.Errorf("%d timeouts, %d queued, %s", s.QueueTimeouts, s.Queued, s.Verdict)
		}
		time.Sleep(5*time.Minute + 2*sweepEvery)
		s = state(t, l)
		if s.QueueTimeouts != 0 || s.WaitP90S != 0 || s.Verdict != Busy {
			t.Errorf("five minutes later: %d timeouts, p90 %v, %s", s.QueueTimeouts, s.WaitP90S, s.Verdict)
		}
		held.Release()
	})
}

// saturated: a queue for 60 s without a break, to the tick.
func TestSaturatedAtTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.SlowWait = time.Hour })
		defer l.Close()
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		c.ask("a", context.Background(), gate.Request{})
		time.Sleep(30 * time.Second)
		c.ask("b", context.Background(), gate.Request{})
		held.Release() // a is served, b waits: no break
		synctest.Wait()
		time.Sleep(30*time.Second - time.Nanosecond)
		if s := state(t, l); s.Saturated || s.Verdict != Busy {
			t.Errorf("a moment early: %v, %s", s.Saturated, s.Verdict)
		}
		time.Sleep(time.Nanosecond)
		if s := state(t, l); !s.Saturated || s.Verdict != LocalQueue {
			t.Errorf("after 60 s: %v, %s", s.Saturated, s.Verdict)
		}
		c.release("a")
		if s := state(t, l); s.Saturated {
			t.Error("saturated without a queue")
		}
		c.finish()
	})
}

// A reserved slot that is free is not free for the bulk calls that wait; a slot that
// could be used and a back end that fails is not a local queue.
func TestVerdictsOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve, c.SlowWait = 3, 1, time.Hour })
		defer l.Close()
		c, ctx := newCrowd(t, l), gate.WithClass(context.Background(), gate.Bulk)
		verdict := func(when string, want Verdict) {
			t.Helper()
			if got := state(t, l).Verdict; got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		fail := func() {
			lease := take(t, l, gate.Interactive)
			gate.Observe(lease.In(ctx, l), gate.Sample{Status: 503, FirstByte: time.Second})
			lease.Release()
		}
		c.ask("a", ctx, gate.Request{})
		verdict("one call", Busy)
		c.ask("b", ctx, gate.Request{})
		c.ask("c", ctx, gate.Request{})
		time.Sleep(61 * time.Second)
		verdict("bulk waits, the reserved slot is free", LocalQueue)
		for range 3 {
			fail() // it holds the reserved slot: none is free
		}
		verdict("failures in a full lane", LocalQueue)
		c.release("a")
		c.release("b") // c runs, a slot is free for anybody
		verdict("the queue is gone", Busy)
		for range 3 {
			fail()
		}
		verdict("failures with a slot to spare", UpstreamDegraded)
		c.ask("d", ctx, gate.Request{})
		c.ask("e", ctx, gate.Request{})
		for range 6 {
			time.Sleep(10 * time.Second)
			fail2 := take(t, l, gate.Interactive)
			fail2.Release()
		}
		verdict("the failures are a minute old", LocalQueue)
		c.finish()
		verdict("the end", Idle)
	})
}

// Retries with a free slot blame the back end, but not those of which there is only a
// client's word. (In a full lane they do not: TestVerdictsByTheClock.)
func TestVerdictOfRetries(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight, c.MaxQueue = 4, 0 })
	ask := func(ctx context.Context, r gate.Request) gate.Lease {
		lease, err := l.Acquire(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	// A header says so: anybody can send one.
	for range 5 {
		ask(context.Background(), gate.Request{Lane: llm, Retry: true}).Release()
	}
	if s := state(t, l); s.Verdict != Idle || s.Retries != 5 {
		t.Errorf("%s, %d retries that requests say they are", s.Verdict, s.Retries)
	}
	for range 3 {
		call := WithCall(context.Background())
		ask(call, gate.Request{Lane: llm}).Release()
		defer ask(call, gate.Request{Lane: llm}).Release()
	}
	if s := state(t, l); s.Verdict != UpstreamDegraded || s.Retries != 8 {
		t.Errorf("%s, %d retries", s.Verdict, s.Retries)
	}
}

// A stale lease says nothing about the call that has its record now.
func TestObserveAfterRelease(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxInflight = 4 })
	lease := take(t, l, gate.Default)
	ctx := lease.In(context.Background(), l)
	lease.Release()
	for range 5 {
		gate.Observe(ctx, gate.Sample{Err: errors.New("reset")})
	}
	if s := state(t, l); s.Verdict != Idle {
		t.Errorf("%s", s.Verdict)
	}
}
