package clientwrap_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The traps of this file: the queue, as a client meets it. Its own laws are tested
// where it is made.

// line is a crowd of clients whose order of service is noted. A call takes 1 s.
type line struct {
	t    *testing.T
	base *failsFirst
	tr   *clientwrap.Transport
	all  sync.WaitGroup
}

func newLine(t *testing.T, l *inflight.Limiter) *line {
	t.Helper()
	b := &failsFirst{takes: time.Second}
	return &line{t: t, base: b, tr: clientwrap.NewTransport(b, l, clientwrap.Config{})}
}

// join lets a client come, and returns when it has its slot or stands in the queue.
func (n *line) join(ctx context.Context, who string) {
	n.t.Helper()
	n.all.Go(func() {
		resp, err := n.tr.RoundTrip(request(n.t, as(ctx, who), nil))
		if err == nil {
			assert.NoError(n.t, resp.Body.Close())
		}
	})
	time.Sleep(time.Millisecond) // one arrives after the other
	synctest.Wait()
}

// The first in line leaves: the next is not forgotten.
func TestTrap32_LostWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		n := newLine(t, l)
		front, leave := context.WithCancel(context.Background())
		n.join(context.Background(), "holder")
		n.join(front, "front")
		n.join(context.Background(), "next")
		leave()
		n.all.Wait()
		assert.Equal(t, []string{"holder", "next"}, n.base.seen())
		assert.Equal(t, 0, inFlight(l))
		l.Close()
	})
}

// Whoever leaves in the moment of being admitted takes nothing along. (G5)
func TestTrap33_GrantRacesCancel(t *testing.T) {
	l := slots(t, 3)
	var now, most atomic.Int32
	tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		return hello(r)
	}), l, clientwrap.Config{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
				resp, err := tr.RoundTrip(request(t, ctx, nil))
				if err == nil && rand.IntN(2) == 0 {
					_ = resp.Body.Close()
				}
				cancel() // an abandoned body gives its slot back by this
			}
		})
	}
	all.Wait()
	comesTo(t, 0, func() int { return inFlight(l) })
	assert.LessOrEqual(t, most.Load(), int32(3))
	assert.Equal(t, 0, queued(l))
}

// A freed slot is the waiter's, not the next caller's or that of who gave it back.
func TestTrap34_Barging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		n := newLine(t, l)
		give := hold(t, l)
		n.join(context.Background(), "waiter")
		n.all.Go(func() {
			give()
			resp, err := n.tr.RoundTrip(request(t, as(context.Background(), "barger"), nil))
			assert.NoError(t, err)
			assert.NoError(t, resp.Body.Close())
		})
		n.all.Wait()
		assert.Equal(t, []string{"waiter", "barger"}, n.base.seen())
		l.Close()
	})
}

// The queue is bounded: who comes too many is refused at once.
func TestTrap37_UnboundedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, func(c *inflight.Config) { c.MaxQueue = 10 })
		n := newLine(t, l)
		var refused atomic.Int32
		begin := time.Now()
		for range 100 {
			n.all.Go(func() {
				resp, err := n.tr.RoundTrip(request(t, context.Background(), nil))
				if rej := clientwrap.Refused(resp, err); rej != nil {
					assert.Equal(t, gate.QueueFull, rej.Reason)
					assert.Zero(t, time.Since(begin))
					refused.Add(1)
				}
			})
		}
		n.all.Wait()
		assert.EqualValues(t, 89, refused.Load())
		assert.Len(t, n.base.seen(), 11)
		l.Close()
	})
}

// Batch work that fills all it may leaves one slot for people, and they stand first in
// the queue.
func TestTrap41_BatchStarvesPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 2, func(c *inflight.Config) { c.InteractiveReserve = 1 })
		n := newLine(t, l)
		bulk := gate.WithClass(context.Background(), gate.Bulk)
		user := gate.WithClass(context.Background(), gate.Interactive)
		for range 3 {
			n.join(bulk, "bulk")
		}
		assert.Equal(t, 1, inFlight(l))
		assert.Equal(t, 2, queued(l))
		n.join(user, "user")
		assert.Equal(t, 2, inFlight(l), "at once")
		n.join(user, "user")
		n.all.Wait()
		served := n.base.seen()
		assert.Equal(t, []string{"bulk", "user"}, served[:2])
		assert.Contains(t, served[2:4], "user", "the second user before the rest of the batch")
		l.Close()
	})
}

// A slot belongs to an exchange, not to a task: a task that holds none may make
// another call, and Do's slot is handed on once.
func TestTrap43_NestedAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		err := l.Do(context.Background(), "http://api.example.com", func(ctx context.Context) error {
			for range 3 { // one after the other, with one slot
				resp, err := tr.RoundTrip(request(t, ctx, nil))
				require.NoError(t, err)
				require.Nil(t, clientwrap.Refused(resp, err))
				assert.Equal(t, 1, inFlight(l))
				require.NoError(t, resp.Body.Close())
				assert.Equal(t, 0, inFlight(l))
			}
			return nil
		})
		require.NoError(t, err)

		// Two at the same time under one Do are two exchanges: the second waits.
		err = l.Do(context.Background(), "http://api.example.com", func(ctx context.Context) error {
			first, err := tr.RoundTrip(request(t, ctx, nil))
			require.NoError(t, err)
			time.AfterFunc(time.Second, func() { assert.NoError(t, first.Body.Close()) })
			begin := time.Now()
			second, err := tr.RoundTrip(request(t, ctx, nil))
			require.NoError(t, err)
			assert.Equal(t, time.Second, time.Since(begin))
			return second.Body.Close()
		})
		require.NoError(t, err)
		assert.Equal(t, 0, inFlight(l))
		l.Close()
	})
}

// Clients over one limiter share its lanes.
func TestTrap44_CapPerClient(t *testing.T) {
	l := slots(t, 2, nobodyWaits)
	granted := 0
	var open []*http.Response
	for range 5 {
		c := &http.Client{Transport: clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})}
		resp, err := get(t, context.Background(), c, "http://api.example.com/")
		if clientwrap.Refused(resp, err) == nil {
			granted++
		}
		open = append(open, resp)
	}
	assert.Equal(t, 2, granted)
	for _, resp := range open {
		require.NoError(t, resp.Body.Close())
	}
	assert.Equal(t, 0, inFlight(l))
}

// A change of the limit touches no slot that is held, and admits who fits now.
func TestTrap45_ReloadOrphansPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 2)
		n := newLine(t, l)
		for range 4 {
			n.join(context.Background(), "x")
		}
		require.NoError(t, l.SetLimit("http://api.example.com", 1))
		assert.Equal(t, 2, inFlight(l))
		require.NoError(t, l.SetLimit("http://api.example.com", 3))
		assert.Equal(t, 3, inFlight(l))
		assert.Equal(t, 1, queued(l))
		c := inflight.DefaultConfig() // off, but for the limit that was set by hand
		require.NoError(t, l.Reconfigure(c))
		require.NoError(t, l.SetLimit("http://api.example.com", inflight.Inherit))
		assert.Equal(t, 4, inFlight(l), "off counts all the same")
		n.all.Wait()
		assert.Equal(t, 0, inFlight(l))
		l.Close()
	})
}

// Who says nothing is of the middle class, here and in the next service.
func TestTrap48_DefaultClass(t *testing.T) {
	l := slots(t, 4)
	var sent []string
	tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Get(clientwrap.ClassHeader))
		return hello(r)
	}), l, clientwrap.Config{ClassHeader: true})
	for _, ctx := range []context.Context{
		context.Background(), gate.WithClass(context.Background(), gate.Interactive), gate.WithClass(context.Background(), gate.Bulk),
	} {
		r := request(t, ctx, nil)
		r.Header.Set(clientwrap.ClassHeader, "interactive") // what a client of ours may have sent
		_, err := tr.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, "interactive", r.Header.Get(clientwrap.ClassHeader), "the caller's request is not touched")
	}
	assert.Equal(t, []string{"default", "interactive", "bulk"}, sent)
	assert.Equal(t, inflight.ByClass{Interactive: 1, Default: 1, Bulk: 1}, lane(t, l).InflightByPriority)
	for _, name := range sent {
		_, err := gate.ParseClass(name)
		require.NoError(t, err)
	}

	// Without the option nothing is sent, and what is there stays.
	plain := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, http.Header{"X": {"x"}}, r.Header)
		return hello(r)
	}), l, clientwrap.Config{})
	r := request(t, context.Background(), nil)
	r.Header.Set("X", "x")
	_, err := plain.RoundTrip(r)
	require.NoError(t, err)
}
