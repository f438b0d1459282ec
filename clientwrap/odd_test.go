package clientwrap_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
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

// What nobody does on purpose.

// deafGate is a gate that cannot stand to be told anything.
type deafGate struct{ recorder }

func (g *deafGate) Observe(uint64, gate.Sample) { panic("not now") }

// Trap 13: a gate that panics when it is told of the call costs no slot either, and no
// connection.
func TestTrap13_GatePanics(t *testing.T) {
	body := newSpy("hello")
	for name, base := range map[string]roundTrip{
		"answered": func(r *http.Request) (*http.Response, error) { return answer(r, 200, body), nil },
		"failed":   func(*http.Request) (*http.Response, error) { return nil, errBase },
	} {
		for _, c := range []clientwrap.Config{{}, {MaxHold: time.Hour}, {ReleaseAtHeaders: true}} {
			t.Run(name, func(t *testing.T) {
				l := slots(t, 1)
				body.closed.Store(0)
				g := new(deafGate)
				tr := clientwrap.NewTransport(base, l, c)
				assert.PanicsWithValue(t, "not now", func() {
					_, _ = tr.RoundTrip(request(t, gate.NewLease(g, 1).In(context.Background(), g), nil))
				})
				assert.Equal(t, 0, inFlight(l))
				assert.Equal(t, name == "answered", body.closed.Load() == 1)
			})
		}
	}
}

// reader is a body made of its Read.
type reader func([]byte) (int, error)

func (f reader) Read(p []byte) (int, error) { return f(p) }
func (reader) Close() error                 { return nil }

// Trap 13: a body whose Read panics, or ends its goroutine, is over.
func TestTrap13_ReadPanics(t *testing.T) {
	for name, read := range map[string]reader{
		"panic":  func([]byte) (int, error) { panic("boom") },
		"goexit": func([]byte) (int, error) { runtime.Goexit(); return 0, nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1)
			tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				return answer(r, 200, read), nil
			}), l, clientwrap.Config{})
			resp, err := tr.RoundTrip(request(t, context.Background(), nil))
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = resp.Body.Read(make([]byte, 1))
			}()
			<-done
			assert.Equal(t, 0, inFlight(l))
		})
	}
}

// Trap 30: Skip and Lane that panic leave no body open.
func TestTrap30_SkipPanics(t *testing.T) {
	l := slots(t, 1)
	body := newSpy("x")
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Skip: func(*http.Request) bool { panic("boom") }})
	assert.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(request(t, context.Background(), body)) })
	assert.EqualValues(t, 1, body.closed.Load())
}

// G6: a date is compared with the time at which the answer is here, not at which the
// call was sent: an answer that took long pauses the lane for no longer.
func TestG6_DateOfALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			time.Sleep(30 * time.Second)
			resp := answer(r, http.StatusTooManyRequests, http.NoBody)
			resp.Header.Set("Retry-After", time.Now().Add(10*time.Second).UTC().Format(http.TimeFormat))
			return resp, nil
		}), l, clientwrap.Config{})
		_, err := tr.RoundTrip(request(t, context.Background(), nil))
		require.NoError(t, err)
		assert.InDelta(t, 10, float64(lane(t, l).PausedS), 0.001)
		l.Close()
	})
}

// Trap 23: a Cancel channel beside a deadline, of the client or of the context, is heard
// all the same.
func TestTrap23_CancelChannelBesideADeadline(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"of the client": time.Hour, "of the context": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1)
				c := &http.Client{Timeout: timeout, Transport: clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})}
				ctx := context.Background()
				if timeout == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Hour)
					defer cancel()
				}
				r, ch := request(t, ctx, nil), make(chan struct{})
				setCancel(r, ch)
				resp, err := c.Do(r)
				require.NoError(t, err)
				assert.Equal(t, 1, inFlight(l))
				close(ch)
				synctest.Wait()
				assert.Equal(t, 0, inFlight(l))
				require.NoError(t, resp.Body.Close())
				l.Close()
			})
		})
	}
}

// Trap 11: what MaxHold has ended and nobody ever closes leaves nothing behind, however
// long the context goes on: no goroutine, and nothing in the context.
func TestTrap11_NeverClosed(t *testing.T) {
	t.Run("goroutines", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // fails at its end if one is left
			l := slots(t, 1)
			tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{MaxHold: time.Minute})
			r := request(t, context.Background(), nil)
			setCancel(r, make(chan struct{}))
			_, err := tr.RoundTrip(r)
			require.NoError(t, err)
			time.Sleep(time.Hour)
			assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1, Unclosed: 1}, tr.Snapshot())
			l.Close()
		})
	})
	t.Run("memory", func(t *testing.T) {
		l := slots(t, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var body weak.Pointer[spy]
		tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			b := newSpy("x")
			body = weak.Make(b)
			return answer(r, 200, b), nil
		}), l, clientwrap.Config{MaxHold: time.Millisecond})
		_, err := tr.RoundTrip(request(t, ctx, nil))
		require.NoError(t, err)
		comesTo(t, 1, func() int { return int(tr.Snapshot().MaxHolds) })
		comesTo(t, 0, func() int {
			if runtime.GC(); body.Value() != nil {
				return 1
			}
			return 0
		})
	})
}

// Trap 27: what another Transport below has refused, or a gate on the request's body, is
// no answer of the back end: it pauses no lane, and nobody is told of one. What MaxHold
// has cut was sent.
func TestTrap27_RefusedBelow(t *testing.T) {
	slow := &gate.Rejection{Reason: gate.SlowBody, Gate: "admission"}
	for name, test := range map[string]struct {
		base  roundTrip
		below clientwrap.Config
		room  int
		told  int
	}{
		"queue":     {hello, clientwrap.Config{}, 1, 0},
		"as error":  {hello, clientwrap.Config{AsError: true}, 1, 0},
		"slow body": {func(*http.Request) (*http.Response, error) { return nil, slow }, clientwrap.Config{}, 2, 0},
		"cut": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}, clientwrap.Config{MaxHold: time.Second}, 2, 1},
		"answered": {hello, clientwrap.Config{}, 2, 1},
	} {
		for _, most := range []time.Duration{0, time.Hour} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					below, above := slots(t, test.room, nobodyWaits), slots(t, 1)
					defer hold(t, below)()
					seen := new(recorder)
					inner := clientwrap.NewTransport(test.base, below, test.below)
					tr := clientwrap.NewTransport(inner, above, clientwrap.Config{MaxHold: most, Lane: func(*http.Request) string { return "above" }})
					ctx := gate.NewLease(seen, 1).In(context.Background(), seen)
					resp, err := tr.RoundTrip(request(t, ctx, nil))
					if name == "answered" {
						require.Nil(t, clientwrap.Refused(resp, err))
						require.NoError(t, resp.Body.Close())
						assert.Len(t, seen.observed(), 2*test.told, "by both")
					} else {
						_ = refusal(t, resp, err)
						assert.Len(t, seen.observed(), 2*test.told)
					}
					assert.Zero(t, lane(t, above).PausedS)
					assert.Equal(t, 0, inFlight(above))
					below.Close()
					above.Close()
				})
			})
		}
	}
}

// lateError is a cause that is a timeout.
type lateError struct{}

func (lateError) Error() string { return "too late" }
func (lateError) Timeout() bool { return true }

// D10, trap 27: who leaves says nothing against the back end, whatever cause the context
// gives and however it leaves. A timeout that is made of such a cause does.
func TestTrap27_WhoHasLeft(t *testing.T) {
	for name, test := range map[string]struct {
		cause    error
		channel  bool
		degraded bool
	}{
		"canceled":     {nil, false, false},
		"with a cause": {errors.New("the user left"), false, false},
		"by channel":   {nil, true, false},
		"too late":     {lateError{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 2)
			here := make(chan struct{})
			s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				here <- struct{}{}
				<-r.Context().Done()
			})
			c := clientOf(t, s, l, clientwrap.Config{})
			for range 5 {
				seen := new(recorder)
				ctx, cancel := context.WithCancelCause(seen.in(context.Background()))
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
				require.NoError(t, err)
				leave := func() { cancel(test.cause) }
				if test.channel {
					ch := make(chan struct{})
					setCancel(r, ch)
					leave = func() { close(ch) }
				}
				go func() {
					<-here
					leave()
				}()
				_, err = c.Do(r)
				require.Error(t, err)
				if test.cause != nil {
					require.ErrorIs(t, err, test.cause)
				}
				samples := seen.observed()
				require.Len(t, samples, 1)
				assert.Equal(t, !test.degraded, errors.Is(samples[0].Err, context.Canceled))
			}
			assert.Equal(t, test.degraded, lane(t, l).Verdict == inflight.UpstreamDegraded)
		})
	}
}

// Trap 43: Do on two lanes, and twice on one: each exchange takes the slot of its own
// lane, once.
func TestTrap43_DoWithinDo(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	call := func(ctx context.Context, host string, left int) {
		t.Helper()
		resp, err := get(t, ctx, &http.Client{Transport: tr}, "http://"+host)
		require.NoError(t, err)
		require.Nil(t, clientwrap.Refused(resp, err))
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, left, inFlight(l))
	}
	do := func(ctx context.Context, host string, fn func(context.Context)) {
		t.Helper()
		require.NoError(t, l.Do(ctx, "http://"+host, func(ctx context.Context) error { fn(ctx); return nil }))
	}
	do(context.Background(), "a", func(ctx context.Context) {
		do(ctx, "b", func(ctx context.Context) {
			do(ctx, "b", func(ctx context.Context) {
				assert.Equal(t, 2, inFlight(l))
				call(ctx, "b", 1)
				call(ctx, "a", 0)
				call(ctx, "b", 0) // there is none left to adopt
			})
		})
		do(ctx, "a", func(ctx context.Context) { call(ctx, "a", 0) })
	})
	assert.Equal(t, 0, inFlight(l))
}

// A request without a URL is the base's to refuse, whatever names the lanes.
func TestNoURL(t *testing.T) {
	for _, c := range []clientwrap.Config{
		{}, {Lane: clientwrap.LaneByModel("")}, {Lane: clientwrap.LaneByModel("", "m")}, {Lane: clientwrap.LaneByModel("http://a", "m")},
	} {
		r := request(t, context.Background(), nil)
		r.URL = nil
		_, err := clientwrap.NewTransport(nil, slots(t, 1), c).RoundTrip(r)
		require.ErrorContains(t, err, "nil Request.URL")
	}
}

// The body of a server's request cannot be closed while it is read. A sender that stalls
// there keeps LaneByModel no longer than the context lasts.
func TestLaneByModelOfAStalledSender(t *testing.T) {
	l := slots(t, 1)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
	failed := make(chan error, 1)
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := tr.RoundTrip(request(t, ctx, r.Body))
		failed <- err
	})
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"a\":")
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, context.DeadlineExceeded) // the connection is open still
	assert.Equal(t, 0, inFlight(l))
}

// A body that LaneByModel reads in vain: its panic is the caller's, and one that ends
// its goroutine has not ended the body.
func TestLaneByModelReadPanics(t *testing.T) {
	l := slots(t, 1)
	var sent error
	tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		_, sent = io.ReadAll(r.Body)
		return answer(r, 200, http.NoBody), nil
	}), l, clientwrap.Config{Lane: clientwrap.LaneByModel("", "m")})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, in := range []context.Context{context.Background(), ctx} {
		body := &spy{Reader: reader(func([]byte) (int, error) { panic("boom") })}
		assert.PanicsWithValue(t, "boom", func() { _, _ = tr.RoundTrip(request(t, in, body)) })
		assert.EqualValues(t, 1, body.closed.Load())
		assert.Equal(t, 0, inFlight(l))
	}
	_, err := tr.RoundTrip(request(t, ctx, reader(func([]byte) (int, error) { runtime.Goexit(); return 0, nil })))
	require.NoError(t, err)
	require.ErrorIs(t, sent, io.ErrUnexpectedEOF)
}
