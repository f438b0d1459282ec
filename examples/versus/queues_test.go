package versus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// wait is how long anybody may wait for room, where a library asks.
const wait = time.Minute

// loop takes one lease and gives it back, n times over, and calls hold in
// between if it is not nil. It stops at the first refusal and returns it. Every
// library has its own, so that it is called the way its users call it.
type loop func(n int, hold func()) error

// caller is who asks. The zero caller is of no flow and no class.
type caller struct {
	flow  string
	class gate.Class
	light bool // a byte less than others
}

// plain is the same caller for every i.
func plain(int) caller { return caller{} }

// mixed is caller i of many: 16 flows, in each of them all classes.
func mixed(i int) caller {
	return caller{
		flow:  fmt.Sprintf("flow-%d", i%16),
		class: gate.Class(i/16%3) + gate.Interactive,
		light: i/16%2 == 0,
	}
}

// starter makes the loop of one caller. ctx can be canceled and never is.
type starter func(ctx context.Context, c caller) loop

// queue is a library that makes its callers wait.
type queue struct {
	name string
	open func(testing.TB, size) starter
}

// size is how much room there is.
type size struct {
	leases  int
	waiters int
	// heavyFrom is the length from which byte admission takes a body for heavy: body
	// to have two classes, more to have one.
	heavyFrom gate.Size
}

var queues = []queue{
	{"headgate-admission", through(lane, openAdmission)},
	{"headgate-inflight", through(lane, openInflight)},
	{"headgate-lanes", through("", openLanes)}, // a tenant is a flow
	{"xsync", openXsync},
	{"failsafe-adaptive", openAdaptive},
	{"failsafe-bulkhead", openBulkhead},
	{"chi-throttle", openThrottle},
}

// lane is the back end that is asked, where a gate has one queue for each.
const lane = "https://llm.example.com/v1|large"

// body is the length of a body, and what a lease of byte admission weighs.
const body = 1 << 20

func openAdmission(s size) (gate.Gate, func(), error) {
	if s.leases < 8 {
		return nil, nil, errors.New("the least byte budget is 8 MiB: want at least 8 leases")
	}
	c := admission.DefaultConfig()
	c.MaxInflightBytes = gate.Size(s.leases) * body
	c.HeavyBytes = s.heavyFrom
	c.MaxWaiters = s.waiters
	c.QueueTimeout = wait
	b, err := admission.New(c)
	if err != nil {
		return nil, nil, err
	}
	return b, b.Close, nil
}

func openInflight(s size) (gate.Gate, func(), error) {
	c := inflight.DefaultConfig()
	c.MaxInflight = s.leases
	c.InteractiveReserve = 0 // the others have none
	c.MaxQueue = s.waiters
	c.QueueTimeout = wait
	l, err := inflight.New(c)
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}

// openLanes opens a controller with a lane for each tenant, which measures and has nothing
// to change.
func openLanes(s size) (gate.Gate, func(), error) {
	c := lanes.DefaultConfig()
	c.Mode, c.VirtualLanes = gate.Enforce, true
	c.MinLimit, c.InitialLimit, c.MaxLimit = s.leases, s.leases, s.leases
	c.MaxQueueCount, c.MaxQueueCost = s.waiters, s.waiters
	c.MaxWait = wait
	l, err := lanes.New(c)
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}

// through measures one of our gates through the interface. It hands each gate the
// same request, but for its lane; what a gate has no use for, it ignores.
func through(lane string, open func(size) (gate.Gate, func(), error)) func(testing.TB, size) starter {
	return func(tb testing.TB, s size) starter {
		g, done, err := open(s)
		require.NoError(tb, err)
		tb.Cleanup(done)
		return func(ctx context.Context, c caller) loop {
			r := gate.Request{Flow: c.flow, Class: c.class, Lane: lane, Cost: 1, Bytes: body, Method: http.MethodPost}
			if c.light {
				r.Bytes--
			}
			return func(n int, hold func()) error {
				for range n {
					lease, err := g.Acquire(ctx, r)
					if err != nil {
						return err
					}
					if hold != nil {
						hold()
					}
					lease.Release()
				}
				return nil
			}
		}
	}
}

func openXsync(_ testing.TB, s size) starter {
	w := semaphore.NewWeighted(int64(s.leases))
	return func(ctx context.Context, _ caller) loop {
		return func(n int, hold func()) error {
			for range n {
				if err := w.Acquire(ctx, 1); err != nil {
					return err
				}
				if hold != nil {
					hold()
				}
				w.Release(1)
			}
			return nil
		}
	}
}

// newAdaptive returns an adaptive limiter whose limit stays where it is, so that
// all have the same room. It measures all the same.
func newAdaptive[R any](leases int) adaptivelimiter.AdaptiveLimiter[R] {
	n := uint(leases)
	return adaptivelimiter.NewBuilder[R]().WithLimits(n, n, n).WithMaxWaitTime(wait).Build()
}

// openAdaptive uses permits, which cost less than an executor. A completed
// execution is recorded, as the policy does; Drop is for those that do not count.
func openAdaptive(_ testing.TB, s size) starter {
	l := newAdaptive[any](s.leases)
	return func(ctx context.Context, _ caller) loop {
		return func(n int, hold func()) error {
			for range n {
				p, err := l.AcquirePermit(ctx)
				if err != nil {
					return err
				}
				if hold != nil {
					hold()
				}
				p.Record()
			}
			return nil
		}
	}
}

func openBulkhead(_ testing.TB, s size) starter {
	b := bulkhead.New[any](uint(s.leases))
	return func(ctx context.Context, _ caller) loop {
		return func(n int, hold func()) error {
			for range n {
				if err := b.AcquirePermit(ctx); err != nil {
					return err
				}
				if hold != nil {
					hold()
				}
				b.ReleasePermit()
			}
			return nil
		}
	}
}

// openThrottle serves requests: the throttle is a middleware and nothing else.
// The request is made before the clock runs.
func openThrottle(tb testing.TB, s size) starter {
	throttle := middleware.ThrottleBacklog(s.leases, s.waiters, wait)
	return func(ctx context.Context, _ caller) loop {
		var held int
		var holding func()
		h := throttle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			held++
			if holding != nil {
				holding()
			}
		}))
		w, r := new(discard), newRequest(tb, ctx)
		return func(n int, hold func()) error {
			holding = hold
			for range n {
				h.ServeHTTP(w, r)
			}
			return w.refused()
		}
	}
}
