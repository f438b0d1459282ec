package waitq

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func waiting(q *Queue) int {
	s := q.Snapshot()
	return s.Waiting[0] + s.Waiting[1] + s.Waiting[2]
}

// TestBook: nobody waits, and the books are as if everybody did.
func TestBook(t *testing.T) {
	c := conf(4)
	c.MaxWaiters = 2
	bubble(t, c, func(t *testing.T, q *Queue) {
		var l [5]Lease
		for i, want := range []Outcome{Granted, Queued, Queued, Full} {
			if got := q.Book(&l[i], Request{Class: 1, Cost: 3, Held: 1}); got != want {
				t.Fatalf("request %d: outcome %d, want %d", i, got, want)
			}
		}
		if q.InUse() != 3 || waiting(q) != 2 {
			t.Fatalf("in use %d, %d wait", q.InUse(), waiting(q))
		}
		if gen := l[1].Gen(); !l[1].Grow(gen, 100) || l[1].Waited(gen) != 0 || q.InUse() != 3 {
			t.Error("an entry in the queue grows")
		}
		l[1].Shrink(l[1].Gen(), 100)

		time.Sleep(time.Second)
		l[0].Release(l[0].Gen()) // now the second has its turn, in the books
		if q.InUse() != 3 || waiting(q) != 1 {
			t.Errorf("in use %d, %d wait", q.InUse(), waiting(q))
		}
		gen := l[2].Gen() // the third leaves before its turn
		if !l[2].Release(gen) || l[2].Release(gen) || waiting(q) != 0 {
			t.Errorf("%d wait", waiting(q))
		}
		l[3].Release(l[3].Gen()) // refused: it holds nothing
		if q.InUse() != 3 {
			t.Errorf("in use %d", q.InUse())
		}
		l[1].Release(l[1].Gen())
		s := q.Snapshot()
		if s.Outcomes[1][Granted] != 1 || s.Outcomes[1][Canceled] != 1 || s.Outcomes[1][Full] != 1 || s.Immediate[1] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestBookTimesOut: an entry leaves the queue in its time, not with its release.
func TestBookTimesOut(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		var a, b Lease
		q.Book(&a, Request{Cost: 1})
		q.Book(&b, Request{Cost: 1})
		time.Sleep(time.Minute)
		synctest.Wait()
		if waiting(q) != 0 || q.Snapshot().Outcomes[0][TimedOut] != 1 {
			t.Errorf("%+v", q.Snapshot())
		}
		a.Release(a.Gen())
		if !b.Release(b.Gen()) {
			t.Error("an entry that timed out is not held")
		}
	})
}

// TestBookAndAcquire stand in one queue.
func TestBookAndAcquire(t *testing.T) {
	bubble(t, conf(1), func(t *testing.T, q *Queue) {
		holder := ask(q, Request{Cost: 1})
		var l Lease
		if q.Book(&l, Request{Cost: 1}) != Queued {
			t.Fatal("not queued")
		}
		second := ask(q, Request{Cost: 1})
		holder.release()
		second.wants(t, Queued)
		l.Release(l.Gen())
		synctest.Wait()
		second.wants(t, Granted)
		q.Book(&l, Request{Cost: 1})
		q.Close()
		releaseAll(second)
		if !l.Release(l.Gen()) {
			t.Error("an entry that Close refused is not held")
		}
		if q.Book(&l, Request{Cost: 1}) != Closed || !l.Release(l.Gen()) {
			t.Error("an entry in a closed queue")
		}
		<-q.Drained()
	})
}

// TestAdmitAll grants everyone, room or not, and the limit holds again later.
func TestAdmitAll(t *testing.T) {
	c := conf(2)
	c.ClassLimit[2] = 1
	bubble(t, c, func(t *testing.T, q *Queue) {
		calls := []*call{ask(q, Request{Cost: 2})}
		for i := range 9 {
			calls = append(calls, ask(q, Request{Class: i % Classes, Cost: int64(1 + i%4), Flow: string(rune('a' + i%2))}))
		}
		q.AdmitAll()
		synctest.Wait()
		wantAll(t, Granted, calls...)
		if q.Waiting() || q.InUse() <= 2 {
			t.Errorf("in use %d", q.InUse())
		}
		late := ask(q, Request{Cost: 1}) // on its way when the policy changed
		late.wants(t, Granted)
		q.Reconfigure(c)
		next := ask(q, Request{Cost: 1})
		next.wants(t, Queued)
		releaseAll(calls...)
		releaseAll(late)
		next.wants(t, Granted)
		releaseAll(next)
	})
}

// TestBookStress: entries are made and released by many at once.
func TestBookStress(t *testing.T) {
	c := conf(8)
	c.Timeout, c.MaxWaiters, c.ClassLimit[1] = time.Millisecond, 20, 2
	q := New(c)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 4))
			var l [3]Lease
			for range 300 {
				for j := range l {
					q.Book(&l[j], Request{Class: r.IntN(Classes), Cost: r.Int64N(9), Flow: string(rune('a' + i%3))})
				}
				if r.IntN(50) == 0 {
					q.AdmitAll()
				}
				for j := range l {
					gen := l[j].Gen()
					l[j].Grow(gen, r.Int64N(3))
					if !l[j].Release(gen) || l[j].Release(gen) {
						t.Error("not released exactly once")
					}
				}
			}
		})
	}
	wg.Wait()
	wantIdle(t, q)
}
