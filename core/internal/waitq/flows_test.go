package waitq

import (
	"testing"
	"time"
)

// TestW11FullFlow: the bounds of one flow, over all classes, beside those of the queue.
func TestW11FullFlow(t *testing.T) {
	c := conf(1)
	c.FlowWaiters, c.FlowQueued, c.AgingStep = 3, 10, 10*time.Second
	t.Run("number", func(t *testing.T) {
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			var own []*call
			for i := range 3 {
				own = append(own, ask(q, Request{Class: i, Cost: 1, Flow: "a"}))
			}
			wantAll(t, Queued, own...)
			ask(q, Request{Class: 2, Cost: 1, Flow: "a"}).wants(t, FlowFull)
			ask(q, Request{Class: 2, Cost: 1, Flow: "b"}).wants(t, Queued)
			ask(q, Request{Class: 1, Cost: 1, Flow: "a"}).wants(t, Queued)
			own[2].wants(t, Displaced) // its own of a lower class, not b's
			time.Sleep(10 * time.Second)
			ask(q, Request{Cost: 1, Flow: "a"}).wants(t, FlowFull) // who aged stays
			q.Close()
			releaseAll(holder)
		})
	})
	t.Run("cost", func(t *testing.T) {
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			ask(q, Request{Cost: 11, Flow: "a"}).wants(t, FlowFull)
			ask(q, Request{Cost: 6, Flow: "a"}).wants(t, Queued)
			ask(q, Request{Cost: 5, Flow: "a"}).wants(t, FlowFull)
			ask(q, Request{Cost: 4, Flow: "a"}).wants(t, Queued)
			q.Close()
			releaseAll(holder)
		})
	})
	t.Run("who can start at once needs no place", func(t *testing.T) {
		c := c
		c.Limit, c.FlowWaiters = 4, 1
		bubble(t, c, func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 2})
			wide := ask(q, Request{Cost: 4, Flow: "a"})
			small := ask(q, Request{Cost: 1, Flow: "a"}) // passes the wide one
			small.wants(t, Granted)
			releaseAll(holder, small, wide)
		})
	})
	t.Run("no bound", func(t *testing.T) {
		bubble(t, conf(1), func(t *testing.T, q *Queue) {
			holder := ask(q, Request{Cost: 1})
			for range 100 {
				ask(q, Request{Cost: 100, Flow: "a"}).wants(t, Queued)
			}
			q.Close()
			releaseAll(holder)
		})
	})
}

// TestFlows: what waits of each flow, over all classes.
func TestFlows(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		if got := q.Flows(); len(got) != 0 {
			t.Errorf("%v in an idle queue", got)
		}
		holder := ask(q, Request{Cost: 1, Flow: "z"})
		ask(q, Request{Cost: 2, Flow: "a"})
		ask(q, Request{Class: 2, Cost: 3, Flow: "a"})
		ask(q, Request{Cost: 4, Flow: "b"})
		got := q.Flows()
		if len(got) != 2 || got["a"] != (FlowQueue{2, 5}) || got["b"] != (FlowQueue{1, 4}) {
			t.Errorf("%v", got)
		}
		q.Close()
		releaseAll(holder)
	})
}

// TestSpare: the room that a newcomer may have, and what a lease holds.
func TestSpare(t *testing.T) {
	bubble(t, conf(10), func(t *testing.T, q *Queue) {
		want := func(n int64) {
			t.Helper()
			if got := q.Spare(); got != n {
				t.Errorf("%d to spare, want %d", got, n)
			}
		}
		want(10)
		holder := ask(q, Request{Class: 1, Cost: 4})
		want(6)
		if got := holder.lease.Charge(); got != 4 {
			t.Errorf("the lease holds %d, want 4", got)
		}
		q.SetLimit(3)
		want(0)
		q.SetLimit(10)
		wide := ask(q, Request{Cost: 7})
		want(0) // somebody waits
		holder.release()
		want(3)
		q.Pause(time.Now().Add(time.Minute))
		want(0)
		q.Resume()
		want(3)
		var booked Lease
		if q.Book(&booked, Request{Cost: 9}) != Queued || booked.Charge() != 0 {
			t.Errorf("a booked lease holds %d", booked.Charge())
		}
		booked.Release(booked.Gen())
		wide.release()
		q.Close()
		want(0)
	})
}
