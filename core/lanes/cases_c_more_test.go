package lanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
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
		parked := 0
		for i := range 6 {
			if name := fmt.Sprint(i); c.waits(name) {
				parked++
			} else if !c.holds(name) {
				c.wantReason(name, map[bool]gate.Reason{false: gate.QueueFull, true: gate.TenantQueueFull}[l.Snapshot().VirtualLanes])
			}
		}
		if len(c.granted) != 1 || len(c.errs) != 4 || parked != 1 || l.Snapshot().QueuedCount != 1 {
			t.Errorf("granted %v, refused %v, %d are parked", c.granted, c.errs, parked)
		}
		c.releaseAll()
	})
}

// C17: what is refused for want of room is 503, or 429 where it is the tenant's own, never
// 500; it says when to come back, and has a stable code in every shape.
func TestC17Status(t *testing.T) {
	for lanes, want := range map[bool]struct {
		status int
		code   string
	}{false: {503, "queue_full"}, true: {429, "tenant_queue_full"}} {
		l := enforcing(t, func(c *Config) { limited(1)(c); c.VirtualLanes, c.MaxQueueCost = lanes, 1 })
		holder := take(t, l, "a", 1)
		rej := reject(t, l, gate.Request{Flow: "a", Cost: 2})
		if rej.Status() != want.status || rej.RetryAfterSeconds() == "" {
			t.Errorf("lanes %v: %v: status %d, Retry-After %q", lanes, rej, rej.Status(), rej.RetryAfterSeconds())
		}
		for format, at := range map[gate.Format]func(map[string]any) any{
			gate.Problem: func(m map[string]any) any { return m["code"] },
			gate.OpenAI:  func(m map[string]any) any { return m["error"].(map[string]any)["code"] },
		} {
			var body map[string]any
			text, _ := rej.Render(format)
			if err := json.Unmarshal(text, &body); err != nil {
				t.Fatal(err)
			}
			if got := at(body); got != want.code {
				t.Errorf("lanes %v: the code is %v in %s", lanes, got, text)
			}
		}
		holder.Release()
	}
}

// C18: a million arrivals in a loop: never more than 100 wait, and what is refused leaves
// nothing behind.
func TestC18AMillionArrivals(t *testing.T) {
	arrivals := 1_000_000
	if raceEnabled {
		arrivals = 100_000 // the race detector makes them ten times as slow
	}
	l := enforcing(t, func(c *Config) { limited(1)(c); c.MaxQueueCount, c.MaxWait = 100, time.Hour })
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	holder := take(t, l, "a", 1)
	runtime.GC()
	before, most := heap(), int64(0)
	var waiters sync.WaitGroup
	for range 100 {
		waiters.Go(func() { _, _ = l.Acquire(context.Background(), gate.Request{Flow: "a", Cost: 1}) })
	}
	for l.Snapshot().QueuedCount < 100 {
		runtime.Gosched()
	}
	for i := range arrivals {
		lease, err := l.Acquire(context.Background(), gate.Request{Flow: "a", Cost: 1})
		if err == nil {
			lease.Release()
			t.Fatal("admitted beside what fills the limit")
		}
		if i%10_000 == 0 {
			most = max(most, heap()-before) // garbage that was not collected yet counts too
			if n := l.Snapshot().QueuedCount; n != 100 {
				t.Fatalf("%d wait", n)
			}
		}
	}
	s := l.Snapshot()
	t.Logf("the heap has grown by %d KiB at most", most>>10)
	if most > 50<<20 || s.ShedReasons[gate.TenantQueueFull] != int64(arrivals) {
		t.Errorf("the heap has grown by %d bytes; %v", most, s.ShedReasons)
	}
	l.Close()
	waiters.Wait()
	holder.Release()
	wantEmpty(t, l)
}

// C18: a request counts as much as it costs, one for n answers at once n times.
func TestC18CostsCount(t *testing.T) {
	bubble(t, func(c *Config) { limited(1)(c); c.MaxQueueCount, c.MaxQueueCost = 100, 1000 }, func(t *testing.T, l *Controller) {
		c := newCrowd(t, l)
		holder := take(t, l, "a", 1)
		answers := func(n int64) int64 { return Price(Features{Bytes: 1, Messages: 1, N: n}) }
		if one, many := answers(1), answers(500); many != one+499 {
			t.Errorf("one answer costs %d, 500 cost %d", one, many)
		}
		c.ask("500 answers", gate.Request{Flow: "b", Cost: answers(500)})
		c.ask("490 answers", gate.Request{Flow: "b", Cost: answers(490)}) // 1000 together
		if s := l.Snapshot(); s.QueuedCount != 2 || s.QueuedCost != 1000 {
			t.Errorf("%d wait at a cost of %d; refused: %v", s.QueuedCount, s.QueuedCost, c.errs)
		}
		c.ask("one more", gate.Request{Flow: "b", Cost: 1})
		c.wantReason("one more", gate.TenantQueueFull)
		l.Close()
		holder.Release()
		synctest.Wait()
	})
}

// C20: of a flood everybody gets exactly one answer, and the books know all of them.
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

// C20, with sockets: 4096 requests to two front servers while the queue is full, 300 at a
// time. Each gets one whole answer, and when they are drained no socket is left without.
func TestC20Sockets(t *testing.T) {
	const requests, atOnce = 4096, 300
	l := enforcing(t, func(c *Config) { limited(2)(c); c.MaxQueueCount, c.VirtualLanes = 4, false })
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := l.Acquire(r.Context(), gate.Request{Flow: r.URL.Path, Cost: 1})
		if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
			w.WriteHeader(rej.Status())
			return
		}
		defer lease.Release()
		time.Sleep(time.Millisecond) // of the back end
	})
	var servers [2]*httptest.Server
	var open [2]atomic.Int64
	for i := range servers {
		servers[i] = httptest.NewUnstartedServer(front)
		servers[i].Config.ConnState = func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				open[i].Add(1)
			case http.StateClosed:
				open[i].Add(-1)
			}
		}
		servers[i].Start()
		defer servers[i].Close()
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}, Timeout: time.Minute}
	var next, served, refused atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1); i <= requests; i = next.Add(1) {
				resp, err := client.Get(fmt.Sprint(servers[i%2].URL, "/", i%7))
				if err != nil {
					t.Error(err)
					continue
				}
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					served.Add(1)
				case http.StatusServiceUnavailable:
					refused.Add(1)
				default:
					t.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	wg.Wait()
	client.CloseIdleConnections()
	for i := range servers {
		servers[i].Close()
		if n := open[i].Load(); n != 0 {
			t.Errorf("%d sockets are open", n)
		}
	}
	s := l.Snapshot()
	t.Logf("%d served, %d refused", served.Load(), refused.Load())
	if served.Load()+refused.Load() != requests || s.Admitted != served.Load() || s.Sheds != refused.Load() || s.Sheds == 0 {
		t.Errorf("%d served, %d refused; the books say %d and %d", served.Load(), refused.Load(), s.Admitted, s.Sheds)
	}
	wantEmpty(t, l)
}

// C12, with sockets: ten clients close theirs while they wait. They are out of the queue
// before the slot is free, and nothing is done for them; who stays is served.
func TestC12ClosedSockets(t *testing.T) {
	l := enforcing(t, func(c *Config) { limited(1)(c); c.MaxWait = time.Hour })
	var began atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		lease, err := l.Acquire(r.Context(), gate.Request{Flow: r.URL.Path, Cost: 1})
		if err != nil {
			return
		}
		defer lease.Release()
		began.Add(1)
	}))
	defer srv.Close()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	waiting := func(n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); l.Snapshot().QueuedCount != n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d wait, want %d", l.Snapshot().QueuedCount, n)
			}
		}
	}
	holder := take(t, l, "holder", 1)
	var gone []net.Conn
	for range 10 {
		gone = append(gone, dial())
	}
	stays := dial()
	defer stays.Close()
	waiting(11)
	for _, conn := range gone {
		_ = conn.Close()
	}
	waiting(1) // the slot is still taken
	if n := began.Load(); n != 0 {
		t.Errorf("%d began", n)
	}
	holder.Release()
	if answer, err := io.ReadAll(stays); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("who stayed got %q, %v", answer, err)
	}
	srv.Close() // waits for all handlers
	if s := l.Snapshot(); s.Canceled != 10 || s.Sheds != 0 || began.Load() != 1 {
		t.Errorf("%d have left, %d were shed, %d began, want 10, 0 and the one that stayed", s.Canceled, s.Sheds, began.Load())
	}
	wantEmpty(t, l)
}
