package guides

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
)

const mib = 1 << 20

// bubble runs f with a Headgate in virtual time. What change makes of the defaults is its
// configuration, and again that of reload.
func bubble(t *testing.T, change func(*headgate.Config), f func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, config: quiet(headgate.DefaultConfig())}
		change(&s.config)
		hg, err := headgate.Open(s.config)
		require.NoError(t, err)
		s.hg = hg
		f(t, s)
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is still held is of no interest
		_ = hg.Shutdown(ctx, nil)
	})
}

type scene struct {
	t      *testing.T
	hg     *headgate.Headgate
	config headgate.Config
}

func (s *scene) reload(change func(*headgate.Config)) {
	s.t.Helper()
	change(&s.config)
	require.NoError(s.t, s.hg.Reconfigure(s.config))
	synctest.Wait()
}

// caller is somebody who has asked a gate.
type caller struct{ got atomic.Pointer[outcome] } // nil while it waits

type outcome struct {
	lease gate.Lease
	err   error
}

func (c *caller) waits() bool { return c.got.Load() == nil }
func (c *caller) runs() bool  { return !c.waits() && c.err() == nil }
func (c *caller) live() bool  { return !c.waits() && c.got.Load().lease.Live() }
func (c *caller) release()    { c.got.Load().lease.Release() }

// err is nil for who waits, too.
func (c *caller) err() error {
	if c.waits() {
		return nil
	}
	return c.got.Load().err
}

func (s *scene) ask(g gate.Gate, r gate.Request) *caller {
	c := new(caller)
	go func() {
		lease, err := g.Acquire(context.Background(), r)
		c.got.Store(&outcome{lease, err})
	}()
	synctest.Wait()
	return c
}

// The rows of reload.md.
func TestReloadTable(t *testing.T) {
	bytes := func(n int64) gate.Request { return gate.Request{Bytes: n} }
	call := gate.Request{Lane: "back end"}

	t.Run("a smaller budget", func(t *testing.T) {
		bubble(t, func(c *headgate.Config) { c.Admission.MaxInflightBytes = 32 * mib }, func(t *testing.T, s *scene) {
			first, second := s.ask(s.hg.Bytes, bytes(20*mib)), s.ask(s.hg.Bytes, bytes(16*mib))
			s.reload(func(c *headgate.Config) { c.Admission.MaxInflightBytes = 8 * mib })
			assert.True(t, first.live() && second.waits(), "who runs keeps it, who waits stays")
			assert.ErrorIs(t, s.ask(s.hg.Bytes, bytes(16*mib)).err(), gate.BodyExceedsBudget, "a newcomer of that size")
			first.release()
			synctest.Wait()
			assert.True(t, second.runs())
			assert.EqualValues(t, 8*mib, s.hg.Bytes.Snapshot().InflightBytes, "it is charged the whole limit")
		})
	})
	t.Run("a smaller and a larger limit of the tenants", func(t *testing.T) {
		bubble(t, fixed(100), func(t *testing.T, s *scene) {
			first, second := s.ask(s.hg.Tenants, gate.Request{Cost: 90}), s.ask(s.hg.Tenants, gate.Request{Cost: 80})
			s.reload(fixed(20))
			assert.True(t, second.waits())
			assert.ErrorIs(t, s.ask(s.hg.Tenants, gate.Request{Cost: 80}).err(), gate.CostExceedsLimit, "a newcomer of that size")
			first.release()
			synctest.Wait()
			assert.True(t, second.runs())
			assert.EqualValues(t, 20, s.hg.Tenants.Snapshot().InflightCost)
			third := s.ask(s.hg.Tenants, gate.Request{Cost: 10})
			assert.True(t, third.waits())
			s.reload(fixed(30))
			assert.True(t, third.runs(), "a larger one is granted at once")
		})
	})
	t.Run("max_inflight 0", func(t *testing.T) {
		bubble(t, slots(1), func(t *testing.T, s *scene) {
			s.ask(s.hg.Outbound, call)
			second, third := s.ask(s.hg.Outbound, call), s.ask(s.hg.Outbound, call)
			s.reload(slots(0))
			assert.True(t, second.runs() && third.runs())
			assert.Equal(t, 3, s.hg.Outbound.Snapshot().Lanes[0].Inflight)
		})
	})
	t.Run("a timeout", func(t *testing.T) {
		bubble(t, slots(1), func(t *testing.T, s *scene) {
			s.ask(s.hg.Outbound, call)
			second := s.ask(s.hg.Outbound, call)
			time.Sleep(10 * time.Second)
			s.reload(func(c *headgate.Config) { c.Inflight.QueueTimeout = 15 * time.Second })
			time.Sleep(5*time.Second - time.Nanosecond)
			synctest.Wait()
			assert.True(t, second.waits(), "until arrival + the new timeout")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.ErrorIs(t, second.err(), gate.QueueTimeout)
		})
	})
	t.Run("a smaller queue", func(t *testing.T) {
		bubble(t, slots(1), func(t *testing.T, s *scene) {
			s.ask(s.hg.Outbound, call)
			second, third, fourth := s.ask(s.hg.Outbound, call), s.ask(s.hg.Outbound, call), s.ask(s.hg.Outbound, call)
			s.reload(func(c *headgate.Config) { c.Inflight.MaxQueue = 1 })
			urgent := call
			urgent.Class = gate.Interactive
			assert.ErrorIs(t, s.ask(s.hg.Outbound, urgent).err(), gate.QueueFull)
			assert.True(t, second.waits() && third.waits() && fourth.waits())
		})
	})
	for _, mode := range []gate.Mode{gate.Shadow, gate.Off} {
		t.Run("mode "+mode.String(), func(t *testing.T) {
			bubble(t, modes(gate.Enforce), func(t *testing.T, s *scene) {
				first, second := s.fill()
				s.reload(modes(mode))
				for i := range first {
					assert.True(t, first[i].live() && second[i].runs(), i)
				}
			})
		})
	}
	for mode, counts := range map[gate.Mode][3]int64{gate.Shadow: {8 * mib, 12, 1}, gate.Off: {0, 0, 2}} {
		t.Run("mode enforce from "+mode.String(), func(t *testing.T) {
			bubble(t, modes(mode), func(t *testing.T, s *scene) {
				s.fill()
				s.reload(modes(gate.Enforce))
				now := s.hg.Snapshot()
				assert.Equal(t, counts, [3]int64{now.Admission.InflightBytes, now.Lanes.InflightCost, int64(now.Inflight.Lanes[0].Inflight)})
			})
		})
	}
}

// fill asks each gate twice for all that it has.
func (s *scene) fill() (first, second [3]*caller) {
	for _, into := range []*[3]*caller{&first, &second} {
		into[0] = s.ask(s.hg.Bytes, gate.Request{Bytes: 8 * mib})
		into[1] = s.ask(s.hg.Tenants, gate.Request{Cost: 12})
		into[2] = s.ask(s.hg.Outbound, gate.Request{Lane: "back end"})
	}
	return first, second
}

// modes has all gates in one mode, and little room.
func modes(m gate.Mode) func(*headgate.Config) {
	return func(c *headgate.Config) {
		slots(1)(c)
		fixed(12)(c)
		c.Admission.MaxInflightBytes = 8 * mib
		c.Admission.Mode, c.Lanes.Mode, c.Inflight.Mode = m, m, m
	}
}

func slots(n int) func(*headgate.Config) {
	return func(c *headgate.Config) { c.Inflight.MaxInflight = n }
}

func fixed(limit int) func(*headgate.Config) {
	return func(c *headgate.Config) {
		c.Lanes.Mode, c.Lanes.Algorithm = gate.Enforce, lanes.Fixed
		c.Lanes.InitialLimit, c.Lanes.MaxLimit = limit, limit
	}
}

// What moving.md puts in the place of chi's Throttle: as many run, as many wait, the next
// one is refused.
func TestThrottleTable(t *testing.T) {
	for _, c := range []struct {
		backlog int
		virtual bool
		status  int
		reason  gate.Reason
	}{
		{0, false, http.StatusServiceUnavailable, gate.QueueFull},
		{3, false, http.StatusServiceUnavailable, gate.QueueFull},
		{0, true, http.StatusServiceUnavailable, gate.QueueFull},
		{3, true, http.StatusTooManyRequests, gate.TenantQueueFull},
	} {
		bubble(t, func(h *headgate.Config) {
			fixed(10)(h)
			h.Lanes.MaxQueueCount, h.Lanes.VirtualLanes = c.backlog, c.virtual
		}, func(t *testing.T, s *scene) {
			var inside atomic.Int64
			end := make(chan struct{})
			app := httpgate.WithConfig(httpgate.Config{Gate: s.hg.Tenants, Cost: func(*http.Request) int64 { return 1 }})(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1); <-end }))
			for range 10 + c.backlog {
				go app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
				synctest.Wait()
			}
			assert.EqualValues(t, 10, inside.Load())
			assert.Equal(t, c.backlog, s.hg.Tenants.Snapshot().QueuedCount)
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, string(c.reason), w.Header().Get(gate.MarkerHeader))
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
			close(end)
			synctest.Wait()
			assert.EqualValues(t, 10+c.backlog, inside.Load())
		})
	}
}

// A file's zero is an error, or none, as the field says (reload.md).
func TestZeroIsNeverUnlimited(t *testing.T) {
	c := headgate.DefaultConfig()
	for _, zero := range []func(){
		func() { c.Admission.MaxInflightBytes = 0 },
		func() { c.Admission.HardMaxBodyBytes = 0 },
		func() { c.Lanes.MaxLimit = 0 },
		func() { c.Inflight.MaxLanes = 0 },
	} {
		c = headgate.DefaultConfig()
		zero()
		assert.ErrorContains(t, c.Validate(), "is 0")
	}
	bubble(t, func(c *headgate.Config) {
		slots(1)(c)
		c.Inflight.MaxQueue = 0
	}, func(t *testing.T, s *scene) {
		s.ask(s.hg.Outbound, gate.Request{})
		var rej *gate.Rejection
		assert.True(t, errors.As(s.ask(s.hg.Outbound, gate.Request{}).err(), &rej), "nobody waits in a queue of 0")
	})
}
