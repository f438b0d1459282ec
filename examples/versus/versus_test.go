package versus

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counter counts who holds.
type counter struct{ now, most, all atomic.Int64 }

func (c *counter) hold() {
	c.all.Add(1)
	n := c.now.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	runtime.Gosched()
	c.now.Add(-1)
}

// TestQueuesBound: a benchmark compares like with like only if everybody lets in as
// many as it was told, never more, and refuses nobody.
func TestQueuesBound(t *testing.T) {
	const callers, rounds = 64, 40
	for _, s := range []struct {
		name string
		size size
		who  func(int) caller
	}{
		{"plain", size{tight, waiters, 2 * body}, plain},
		{"mixed", size{tight, waiters, body}, mixed},
	} {
		for _, q := range queues {
			t.Run(s.name+"/"+q.name, func(t *testing.T) {
				start := q.open(t, s.size)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var c counter
				var wg sync.WaitGroup
				full, inside := make(chan struct{}), atomic.Int64{}
				for i := range callers {
					run := start(ctx, s.who(i))
					wg.Go(func() {
						// The first ones in wait until there are as many as may be.
						assert.NoError(t, run(1, func() {
							if inside.Add(1) == tight {
								close(full)
							}
							<-full
							c.hold()
						}))
						assert.NoError(t, run(rounds-1, c.hold))
					})
				}
				wg.Wait()
				assert.EqualValues(t, callers*rounds, c.all.Load())
				assert.LessOrEqual(t, c.most.Load(), int64(tight))
			})
		}
	}
}

// TestRefusalFails: a refused caller is an error of its loop, so a benchmark cannot
// measure refusals by mistake.
func TestRefusalFails(t *testing.T) {
	for _, q := range queues {
		if q.name == "failsafe-adaptive" {
			continue // it looks at the context only when it has to wait
		}
		t.Run(q.name, func(t *testing.T) {
			start := q.open(t, size{tight, waiters, 2 * body})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			run := start(ctx, plain(0))
			refused := false
			for range 64 { // a select among ready cases picks one at random
				refused = refused || run(1, nil) != nil
			}
			assert.True(t, refused)
		})
	}
}

// TestGuards: each middleware serves, hands on the context, and all but those that
// bound nothing bound what is inside.
func TestGuards(t *testing.T) {
	const limit = tight
	type mark struct{}
	for _, g := range guards {
		t.Run(g.name, func(t *testing.T) {
			unbounded := g.name == "bare" || g.name == "withcontext"
			inside, open := make(chan struct{}, 3*limit), make(chan struct{})
			h := g.wrap(t, limit, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "here", r.Context().Value(mark{}))
				inside <- struct{}{}
				<-open
			}))
			serve := func() error {
				w, r := new(discard), newRequest(t, context.WithValue(t.Context(), mark{}, "here"))
				if g.name == "headgate-nethttp" {
					heavy(r) // a request without a body takes no room
				}
				h.ServeHTTP(w, r)
				return w.refused()
			}
			var wg sync.WaitGroup
			for range limit {
				wg.Go(func() { assert.NoError(t, serve()) })
			}
			for range limit {
				<-inside
			}
			if !unbounded {
				wg.Go(func() { _ = serve() }) // queues or is refused, as the library does
				for range 1000 {
					runtime.Gosched()
				}
				assert.Empty(t, inside, "one more than the limit is inside")
			}
			close(open)
			wg.Wait()
		})
	}
}

// heavy gives r a body that weighs one lease of openAdmission.
func heavy(r *http.Request) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("")), body
}

// TestDiscard: an answer that is not the handler's is a refusal.
func TestDiscard(t *testing.T) {
	w := new(discard)
	require.NoError(t, w.refused())
	http.Error(w, "busy", http.StatusServiceUnavailable)
	require.Error(t, w.refused())
}
