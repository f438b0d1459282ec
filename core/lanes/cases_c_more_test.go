package lanes

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// C15: the bound of the wait is not one of the work.
func TestC15WaitIsNotExecution(t *testing.T) {
	bubble(t, limited(1), func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		c.ask("a", gate.Request{Cost: 1})
		c.ask("b", gate.Request{Cost: 1})
		time.Sleep(time.Second)
		c.release("a")
		time.Sleep(time.Hour)
		if !c.holds("b") || !c.leases["b"].Live() {
			t.Error("the lease did not last")
		}
		if w := c.leases["b"].Waited(); w != time.Second {
			t.Errorf("waited %v", w)
		}
		c.release("b")
	})
}

// C16: one runs, one waits, four are refused; there is no second queue.
func TestC16OneQueue(t *testing.T) {
	both(t, func(c *Config) { limited(1)(c); c.MaxQueueCount = 1 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		for i := range 6 {
			c.ask(fmt.Sprint(i), gate.Request{Flow: "a", Cost: 1})
		}
		if len(c.granted) != 1 || len(c.errs) != 4 || l.Snapshot().QueuedCount != 1 {
			t.Errorf("granted %v, refused %v", c.granted, c.errs)
		}
		c.releaseAll()
	})
}

// C17: statuses and Retry-After of what is refused for want of room.
func TestC17Status(t *testing.T) {
	for lanes, want := range map[bool]int{false: 503, true: 429} {
		l := enforcing(t, func(c *Config) { limited(1)(c); c.VirtualLanes, c.MaxQueueCost = lanes, 1 })
		holder := take(t, l, "a", 1)
		rej := reject(t, l, gate.Request{Flow: "a", Cost: 2})
		if rej.Status() != want || rej.RetryAfterSeconds() == "" {
			t.Errorf("lanes %v: %v: status %d, Retry-After %q", lanes, rej, rej.Status(), rej.RetryAfterSeconds())
		}
		holder.Release()
	}
}

// C18: the queue is bounded whatever comes, and a request counts as much as it costs.
func TestC18BoundedQueue(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxQueueCount, c.MaxQueueCost = 100, 1000 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		for i := range 2000 {
			go func() { _, _ = l.Acquire(context.Background(), gate.Request{Flow: "a", Cost: 1}) }()
			if i%100 == 99 {
				synctest.Wait()
				if n := l.Snapshot().QueuedCount; n > 100 {
					t.Fatalf("%d wait", n)
				}
			}
		}
		synctest.Wait()
		if n := l.Snapshot().QueuedCount; n != 100 {
			t.Errorf("%d wait, want 100", n)
		}
		c.ask("dear", gate.Request{Flow: "b", Cost: 990})
		c.ask("dearer", gate.Request{Flow: "b", Cost: 11})
		c.wantReason("dearer", gate.TenantQueueFull)
		l.Close()
		holder.Release()
		synctest.Wait()
	})
}

// C20: of a flood everybody gets exactly one answer.
func TestC20EveryoneIsAnswered(t *testing.T) {
	both(t, limited(2), func(t *testing.T, l *Controller) {
		var answers atomic.Int64
		var wg sync.WaitGroup
		for i := range 4096 {
			wg.Go(func() {
				lease, err := l.Acquire(context.Background(), gate.Request{Flow: fmt.Sprint(i % 7), Cost: 1})
				if err == nil {
					time.Sleep(10 * time.Millisecond)
					lease.Release()
				}
				answers.Add(1)
			})
		}
		wg.Wait()
		s := l.Snapshot()
		if answers.Load() != 4096 || s.Admitted+s.Sheds != 4096 {
			t.Errorf("%d answers, %d admitted, %d shed", answers.Load(), s.Admitted, s.Sheds)
		}
	})
}
