package clientwrap_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// G5: callers of short contexts, behind a call that takes long, all leave at their own
// time, and nothing of them stays: no place in the queue, no context.
func TestG5_WaitersThatLeave(t *testing.T) {
	const calls = 100
	type mark struct{ _ [64]byte }
	type markKey struct{}
	l := slots(t, 1)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	give := hold(t, l)
	marks := make(chan weak.Pointer[mark], calls)
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			m := new(mark)
			marks <- weak.Make(m)
			ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), markKey{}, m), 10*time.Millisecond)
			defer cancel()
			resp, err := tr.RoundTrip(request(t, ctx, nil))
			assert.Equal(t, gate.Deadline, refusal(t, resp, err).Reason)
		})
	}
	all.Wait()
	assert.Equal(t, 0, queued(l))
	assert.Equal(t, 1, inFlight(l))
	kept := make([]weak.Pointer[mark], calls)
	for i := range kept {
		kept[i] = <-marks
	}
	comesTo(t, 0, func() (n int) {
		runtime.GC()
		for _, m := range kept {
			if m.Value() != nil {
				n++
			}
		}
		return n
	})
	give()
	resp, err := tr.RoundTrip(request(t, context.Background(), nil))
	require.NoError(t, err)
	require.Nil(t, clientwrap.Refused(resp, err))
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 0, inFlight(l))
}

// G7: those who are refused together are not told to come back together, nor earlier
// than a call takes.
func TestG7_RefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, takes = 1000, 10
		l := slots(t, 1, nobodyWaits)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		for range 200 { // the lane learns how long a call takes
			give := hold(t, l)
			time.Sleep(takes * time.Second)
			give()
		}
		defer hold(t, l)()
		back := make(map[int]int)
		for range calls {
			resp, err := tr.RoundTrip(request(t, context.Background(), nil))
			require.NoError(t, err)
			s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			require.NoError(t, err)
			assert.GreaterOrEqual(t, s, takes)
			back[s]++
			_ = refusal(t, resp, nil)
		}
		for s, n := range back {
			assert.LessOrEqual(t, n, calls*3/10, "after %d s: %v", s, back)
		}
		l.Close()
	})
}

// G14: of three calls the first that succeeds ends the others, which give their slots
// back and say nothing against the back end.
func TestG14_Losers(t *testing.T) {
	l := slots(t, 3)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late head":
			<-r.Context().Done()
		case "/late body":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	tr := clientwrap.NewTransport(s.Client().Transport, l, clientwrap.Config{})
	c := &http.Client{Transport: tr}
	for range 10 {
		ctx, cancel := context.WithCancelCause(context.Background())
		var losers sync.WaitGroup
		for _, path := range []string{"/late%20head", "/late%20body"} {
			losers.Go(func() {
				resp, err := get(t, ctx, c, s.URL+path)
				if err == nil {
					_, err = resp.Body.Read(make([]byte, 1))
					_ = resp.Body.Close()
				}
				assert.Error(t, err)
			})
		}
		comesTo(t, 2, func() int { return inFlight(l) })
		winner := mustGet(t, ctx, c, s.URL)
		cancel(errors.New("another was first"))
		require.NoError(t, winner.Body.Close())
		losers.Wait()
		comesTo(t, 0, func() int { return inFlight(l) })
	}
	comesTo(t, 0, func() int { return int(tr.Snapshot().Unclosed) })
	assert.Equal(t, inflight.Idle, lane(t, l).Verdict)
}
