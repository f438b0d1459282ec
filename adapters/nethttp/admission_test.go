package httpgate_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// budget opens the real gate with 8 MiB. At the end of the test nothing may be left in it.
func budget(t *testing.T, change func(*admission.Config)) *admission.Budget {
	t.Helper()
	c := admission.DefaultConfig()
	c.MaxInflightBytes = 8 * mib
	if change != nil {
		change(&c)
	}
	b, err := admission.New(c)
	require.NoError(t, err)
	return b
}

// drained closes b and checks that every counter is back at zero.
func drained(t *testing.T, b *admission.Budget) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	b.Close()
	require.NoError(t, b.Drain(ctx))
	s := b.Snapshot()
	assert.Zero(t, s.InflightBytes)
	assert.Zero(t, s.Inflight)
	assert.Zero(t, s.Waiting)
	assert.Zero(t, s.QueuedBytes)
}

// readAll answers how much it has read, or refuses.
func readAll(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if httpgate.Refuse(w, r, err) {
		return
	}
	_, _ = io.WriteString(w, strconv.Itoa(len(body)))
}

// A1, A12: bodies that do not fit together are read one after the other, whole, and
// never hold more than the budget.
func TestA12BudgetHolds(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		b := budget(t, func(c *admission.Config) { // a loaded test machine is no slow sender
			c.QueueTimeout, c.BodyIdle, c.MinBodyRate, c.MinBodyRateWaiting = hang, hang, 0, 0
		})
		defer drained(t, b)
		var most atomic.Int64
		srv, errorLog := serve(t, http2, httpgate.New(b)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for n := b.Snapshot().InflightBytes; ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			readAll(w, r)
		})))
		var wg sync.WaitGroup
		for range 12 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				req, _ := http.NewRequest(http.MethodPost, srv.URL, &repeat{n: 2 * mib})
				req.ContentLength = 2 * mib
				resp, err := srv.Client().Do(req)
				if assert.NoError(t, err) {
					body, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					assert.Equal(t, strconv.Itoa(2*mib), string(body))
				}
			}()
		}
		wg.Wait()
		assert.LessOrEqual(t, most.Load(), int64(8*mib))
		assert.Empty(t, errorLog.String())
	})
}

// A2, A3: what can never fit is refused with 413, declared or not, without a Retry-After.
func TestA3NeverFits(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		b := budget(t, func(c *admission.Config) { c.HardMaxBodyBytes = 10 * mib })
		defer drained(t, b)
		srv, _ := serve(t, http2, httpgate.New(b)(http.HandlerFunc(readAll)))
		for _, test := range []struct {
			size     int
			declared bool
			reason   gate.Reason
		}{
			{11 * mib, true, gate.PayloadTooLarge}, {9 * mib, true, gate.BodyExceedsBudget},
			{9 * mib, false, gate.BodyExceedsBudget}, {8 * mib, true, ""}, {8 * mib, false, ""},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, &repeat{n: test.size})
			require.NoError(t, err)
			if test.declared {
				req.ContentLength = int64(test.size)
			}
			resp, err := srv.Client().Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, string(test.reason), resp.Header.Get(gate.MarkerHeader))
			assert.Empty(t, resp.Header.Get("Retry-After"))
			if test.reason == "" {
				assert.Equal(t, strconv.Itoa(test.size), string(body))
			} else {
				assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
			}
		}
	})
}

// A body that is admitted is read to its end on a budget without any room left: the
// end of a body costs nothing, and HTTP/2 tells it late.
func TestFullBudgetReadsToTheEnd(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		b := budget(t, nil)
		defer drained(t, b)
		srv, _ := serve(t, http2, httpgate.New(b)(http.HandlerFunc(readAll)))
		rest, err := b.Acquire(t.Context(), gate.Request{Bytes: 8*mib - 1000})
		require.NoError(t, err)
		defer rest.Release()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, &repeat{n: 1000})
		require.NoError(t, err)
		req.ContentLength = 1000
		resp, err := srv.Client().Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, http.StatusOK, resp.StatusCode)
	})
}

// K9, A6: slow senders are ended while someone waits, told so, and make room.
func TestK9SlowSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, nil)
		connect, stop := pipeServer(t, &http.Server{Handler: httpgate.New(b)(http.HandlerFunc(readAll))})
		slow := connect()
		slow.say("POST / HTTP/1.1", "Host: x", "Content-Length: "+strconv.Itoa(8*mib))
		_, err := io.WriteString(slow, "only this")
		require.NoError(t, err)
		synctest.Wait()
		quick := connect()
		quick.say("POST / HTTP/1.1", "Host: x", "Content-Length: 4")
		go io.WriteString(quick, "body")
		ended, _ := slow.answer()
		assert.Equal(t, http.StatusRequestTimeout, ended.StatusCode)
		assert.Equal(t, "slow_body", ended.Header.Get(gate.MarkerHeader))
		slow.requireClosed()
		served, body := quick.answer()
		assert.Equal(t, http.StatusOK, served.StatusCode)
		assert.Equal(t, "4", body)
		stop()
		drained(t, b)
	})
}

// T15, F21: closing the gate refuses whoever waits at once, while what runs goes on.
func TestT15Shutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, nil)
		finish := make(chan struct{})
		srv := &http.Server{Handler: httpgate.New(b)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-finish
			readAll(w, r)
		}))}
		connect, stop := pipeServer(t, srv)
		running := connect()
		running.say("POST / HTTP/1.1", "Host: x", "Content-Length: "+strconv.Itoa(8*mib))
		go io.WriteString(running, strings.Repeat("x", 8*mib))
		synctest.Wait()
		waiting := connect()
		waiting.say("POST / HTTP/1.1", "Host: x", "Content-Length: 4")
		synctest.Wait()
		require.Equal(t, 1, b.Snapshot().Waiting)

		start := time.Now()
		b.Close()
		resp, _ := waiting.answer()
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, "shutting_down", resp.Header.Get(gate.MarkerHeader))
		assert.Zero(t, time.Since(start))
		waiting.Close()

		down := make(chan error, 1)
		go func() { down <- srv.Shutdown(context.Background()) }()
		close(finish)
		done, body := running.answer()
		assert.Equal(t, http.StatusOK, done.StatusCode)
		assert.Equal(t, strconv.Itoa(8*mib), body)
		running.Close()
		require.NoError(t, <-down)
		stop()
		drained(t, b)
	})
}

// The bytes come back at the back end's first byte, while the handler streams on.
func TestBytesComeBackAtFirstByte(t *testing.T) {
	b := budget(t, nil)
	defer drained(t, b)
	observed, end := make(chan struct{}), make(chan struct{})
	srv, _ := serve(t, false, httpgate.New(b)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		gate.Observe(httpgate.Context(r), gate.Sample{FirstByte: time.Millisecond, Status: 200})
		close(observed)
		<-end
		ok(w, r)
	})))
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := srv.Client().Post(srv.URL, "", strings.NewReader(strings.Repeat("x", 1000)))
		if assert.NoError(t, err) {
			resp.Body.Close()
		}
	}()
	<-observed
	assert.Zero(t, b.Snapshot().InflightBytes)
	close(end)
	<-done
}

// Without a body the real gate costs its two allocations and no more.
func TestAllocationsOfAdmission(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	b := budget(t, nil)
	defer drained(t, b)
	h := httpgate.New(b)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, r := &discard{http.Header{}}, request()
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), 2.0)
}
