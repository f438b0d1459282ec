package waitq

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Idle is false while a lease is out, anybody waits or there is a pause, and after Close.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config{Limit: 1, Timeout: time.Hour, MaxWaiters: 9, ClassLimit: [Classes]int64{Unlimited, Unlimited, Unlimited}})
		want := func(when string, idle bool) {
			t.Helper()
			if q.Idle() != idle {
				t.Errorf("%s: idle %v", when, !idle)
			}
		}
		want("at first", true)
		var l, w Lease
		if q.Acquire(context.Background(), &l, Request{Class: 1, Cost: 1}).Outcome != Granted {
			t.Fatal("no lease")
		}
		want("a lease is out", false)
		done := make(chan struct{})
		go func() { defer close(done); q.Acquire(context.Background(), &w, Request{Class: 2, Cost: 1}) }()
		synctest.Wait()
		want("somebody waits", false)
		q.Pause(time.Now().Add(time.Minute))
		l.Release(l.Gen())
		want("paused, and somebody waits", false)
		time.Sleep(time.Minute)
		<-done
		want("the other lease is out", false)
		w.Release(w.Gen())
		want("all is back", true)
		q.Pause(time.Now().Add(time.Minute))
		want("paused", false)
		q.Resume()
		want("resumed", true)
		q.SetLimit(5)
		want("another limit", true)
		var book [3]Lease
		q.SetLimit(1)
		for i := range book {
			q.Book(&book[i], Request{Cost: 1})
		}
		want("booked", false)
		for i := range book {
			book[i].Release(book[i].Gen())
		}
		want("nothing is booked", true)
		q.Close()
		want("closed", false)
	})
}
