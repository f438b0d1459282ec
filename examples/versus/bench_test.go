package versus

import (
	"context"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	room    = 64 // leases, where there is room for everybody
	tight   = 8  // leases, where there is not
	crowd   = 128
	parked  = 100_000 // in BenchmarkHandOver
	waiters = 1024
)

// BenchmarkUncontended is one goroutine that takes and gives back.
func BenchmarkUncontended(b *testing.B) {
	for _, q := range queues {
		b.Run(q.name, func(b *testing.B) {
			drive(b, q.open(b, size{room, waiters, 2 * body}), crew{goroutines: 1, batch: b.N, who: plain})
		})
	}
}

// BenchmarkParallel is one goroutine per P, and room for all.
func BenchmarkParallel(b *testing.B) {
	for _, q := range queues {
		b.Run(q.name, func(b *testing.B) {
			drive(b, q.open(b, size{max(room, runtime.GOMAXPROCS(0)), waiters, 2 * body}),
				crew{goroutines: runtime.GOMAXPROCS(0), batch: 1024, who: plain})
		})
	}
}

// BenchmarkContended is 128 goroutines and room for 8. Who holds yields once.
func BenchmarkContended(b *testing.B) {
	for _, q := range queues {
		b.Run(q.name, func(b *testing.B) {
			drive(b, q.open(b, size{tight, waiters, 2 * body}), crew{crowd, 16, plain, runtime.Gosched})
		})
	}
}

// BenchmarkContendedMixed is BenchmarkContended with callers of 16 flows and of all
// classes. Libraries that know neither do what they did there.
func BenchmarkContendedMixed(b *testing.B) {
	for _, q := range queues {
		b.Run(q.name, func(b *testing.B) {
			drive(b, q.open(b, size{tight, waiters, body}), crew{crowd, 16, mixed, runtime.Gosched})
		})
	}
}

// crew is who runs a benchmark.
type crew struct {
	goroutines int
	batch      int // rounds that a goroutine takes at a time
	who        func(i int) caller
	hold       func()
}

// drive has the crew do b.N rounds. Each goroutine has a context of its own, as
// requests have.
func drive(b *testing.B, start starter, c crew) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	line := make(chan struct{})
	failures := make(chan error, c.goroutines)
	for i := range c.goroutines {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		run := start(ctx, c.who(i))
		wg.Go(func() {
			<-line
			for {
				n := min(c.batch, c.batch+int(left.Add(int64(-c.batch))))
				if n <= 0 {
					return
				}
				if err := run(n, c.hold); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	close(line)
	wg.Wait()
	b.StopTimer()
	close(failures)
	for err := range failures {
		require.NoError(b, err)
	}
}

// BenchmarkHandOver is 100,000 goroutines and room for 8: whoever gives back wakes
// one that has been parked for long, and queues up again. Our gates have them in
// 10,000 flows.
func BenchmarkHandOver(b *testing.B) {
	for _, q := range queues {
		if q.name == "chi-throttle" {
			continue // it keeps a request in memory for every waiter
		}
		b.Run(q.name, func(b *testing.B) { handOver(b, q.open(b, size{tight, 2 * parked, 2 * body})) })
	}
}

func handOver(b *testing.B, start starter) {
	const all = tight + parked
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	line, done := make(chan struct{}), make(chan struct{})
	hold := func() { <-line } // before it is closed, 8 hold and the others park
	failures := make(chan error, all)
	for i := range all {
		run := start(ctx, caller{flow: "flow-" + strconv.Itoa(i%10_000)})
		wg.Go(func() {
			for {
				if err := run(1, hold); err != nil {
					failures <- err
				}
				switch n := left.Add(-1); {
				case n == 0:
					close(done)
					return
				case n < 0:
					return
				}
			}
		})
	}
	untilIdle(b)
	b.ReportAllocs()
	b.ResetTimer()
	close(line)
	<-done
	b.StopTimer()
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(b, err)
	}
}

// untilIdle returns when nothing runs but the caller: whoever still fights for a
// lock runs now and then.
func untilIdle(b *testing.B) {
	b.Helper()
	s := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
	for quiet := 0; quiet < 20; quiet++ {
		time.Sleep(time.Millisecond)
		metrics.Read(s)
		if s[0].Value.Kind() != metrics.KindUint64 {
			b.Skip("needs a Go that counts goroutines by state (1.26)")
		}
		if s[0].Value.Uint64()+s[1].Value.Uint64() > 1 {
			quiet = 0
		}
	}
}

// BenchmarkMiddleware is a handler that does nothing, called through each
// middleware with a request that has no body.
func BenchmarkMiddleware(b *testing.B) {
	for _, g := range guards {
		b.Run(g.name, func(b *testing.B) {
			served := 0
			h := g.wrap(b, room, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			w, r := new(discard), newRequest(b, context.Background())
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				h.ServeHTTP(w, r)
			}
			b.StopTimer()
			require.NoError(b, w.refused())
			require.Equal(b, b.N, served)
		})
	}
}
