package inflight

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// While a watcher is busy, calls go on, and all their changes are told to it as one.
func TestChangesAreToldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxInflight, c.InteractiveReserve = 3, 0 })
		defer l.Close()
		c := newCrowd(t, l)
		c.ask("first", context.Background(), gate.Request{})
		free := make(chan struct{})
		var heard []Demand
		l.Watch(func(d Demand) {
			heard = append(heard, d)
			<-free
		})
		synctest.Wait()
		for i := range 1000 { // each begins, and two of three end
			c.ask(fmt.Sprint(i), context.Background(), gate.Request{Class: gate.Bulk})
			if i%3 != 0 {
				order := c.order()
				c.release(order[len(order)-1])
			}
		}
		close(free)
		synctest.Wait()
		s := state(t, l)
		want := []Demand{{llm, 1, 0, 0}, {llm, s.Inflight, s.Queued, gate.Bulk}}
		if fmt.Sprint(heard) != fmt.Sprint(want) || s.Queued < 100 {
			t.Errorf("heard %v, want %v", heard, want)
		}
		c.finish()
	})
}

// slowLook is the owner of a queue whose first look at its records lasts until it is let go.
type slowLook struct {
	looks atomic.Int64
	first chan struct{}
}

func (o *slowLook) Entered() {}
func (o *slowLook) Shared(func(*waitq.Lease) bool) {
	if o.looks.Add(1) == 1 {
		<-o.first
	}
}

// A lane that changes while it is being looked at is looked at again: what was seen may be
// how it was before.
func TestChangeDuringALookIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, nil)
		defer l.Close()
		ln, o := l.find(llm), &slowLook{first: make(chan struct{})}
		q := ln.queue(ln.set.Load(), gate.Enforce)
		q.Owner = o
		ln.q = waitq.New(q)
		var heard told
		l.Watch(heard.hear)
		synctest.Wait()
		if o.looks.Load() != 1 || heard.calls != 0 {
			t.Fatalf("%d looks, %d calls before the first look has ended", o.looks.Load(), heard.calls)
		}
		l.watch.changed(ln)
		close(o.first)
		synctest.Wait()
		if o.looks.Load() != 2 || heard.calls != 2 {
			t.Errorf("%d looks, %d calls; want 2 of each", o.looks.Load(), heard.calls)
		}
	})
}
