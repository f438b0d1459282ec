package clientwrap_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The traps of this file: deadlines, errors, and who is to blame.

// http.Client's Timeout runs while the call queues; Do waits above it.
func TestTrap21_TimeoutIncludesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		c := &http.Client{Timeout: 5 * time.Second, Transport: clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})}
		busy := func() { time.AfterFunc(time.Minute, hold(t, l)) }

		busy()
		begin := time.Now()
		_, err := get(t, context.Background(), c, "http://api.example.com/")
		assert.True(t, os.IsTimeout(err), "%v", err)
		assert.Equal(t, 5*time.Second, time.Since(begin))
		assert.Equal(t, 0, queued(l))
		time.Sleep(time.Hour)

		busy()
		begin = time.Now()
		err = l.Do(context.Background(), "http://api.example.com", func(ctx context.Context) error {
			assert.Equal(t, time.Minute, time.Since(begin))
			resp := mustGet(t, ctx, c, "http://api.example.com/")
			assert.Equal(t, 1, inFlight(l), "Do's slot, no second one")
			assert.Equal(t, "hello", readAll(t, resp.Body))
			return resp.Body.Close()
		})
		require.NoError(t, err)
		assert.Equal(t, 0, inFlight(l))
		l.Close()
	})
}

// http.Client's Timeout may replace our error by a text. What happened is in the
// lane's counters all the same, and who sets a deadline of their own sees all of it.
func TestTrap22_IdentityIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		defer hold(t, l)()

		_, err := get(t, context.Background(), &http.Client{Timeout: time.Second, Transport: tr}, "http://api.example.com/")
		assert.True(t, os.IsTimeout(err), "%v", err)
		assert.EqualValues(t, 1, lane(t, l).ShedReasons[gate.Deadline])

		mine := errors.New("my budget is spent")
		for name, cause := range map[string]error{"plain": nil, "with a cause": mine} {
			ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, cause)
			resp, err := get(t, ctx, &http.Client{Transport: tr}, "http://api.example.com/")
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, gate.Deadline, name)
			assert.True(t, os.IsTimeout(err), name)
			if cause != nil {
				require.ErrorIs(t, err, mine)
			}
			rej := refusal(t, resp, err)
			assert.Equal(t, "http://api.example.com", rej.Lane)
			assert.Equal(t, time.Second, rej.Waited)
		}
		assert.EqualValues(t, 3, lane(t, l).ShedReasons[gate.Deadline])
		l.Close()
	})
}

// The deprecated Cancel channel ends the wait, the call and the slot like a context.
func TestTrap23_CancelChannel(t *testing.T) {
	cancelable := func(t *testing.T, body io.ReadCloser) (*http.Request, chan struct{}) {
		t.Helper()
		r := request(t, context.Background(), body)
		ch := make(chan struct{})
		setCancel(r, ch)
		return r, ch
	}
	t.Run("closed before", func(t *testing.T) {
		l := slots(t, 1)
		r, ch := cancelable(t, nil)
		close(ch)
		_, err := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{}).RoundTrip(r)
		assert.ErrorIs(t, err, context.Canceled)
	})
	t.Run("in the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			give := hold(t, l)
			body := newSpy("x")
			r, ch := cancelable(t, body)
			time.AfterFunc(time.Second, func() { close(ch) })
			begin := time.Now()
			_, err := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{}).RoundTrip(r)
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, time.Second, time.Since(begin))
			assert.EqualValues(t, 1, body.closed.Load())
			assert.Equal(t, 0, queued(l))
			give()
			l.Close()
		})
	})
	t.Run("the deadline is first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			give := hold(t, l)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			r, _ := cancelable(t, nil)
			_, err := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{}).RoundTrip(r.WithContext(ctx))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			give()
			l.Close()
		})
	})
	t.Run("abandoned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
			r, ch := cancelable(t, nil)
			_, err := tr.RoundTrip(r)
			require.NoError(t, err)
			assert.Equal(t, 1, inFlight(l))
			close(ch)
			synctest.Wait()
			assert.Equal(t, 0, inFlight(l))
			assert.EqualValues(t, 1, tr.Snapshot().Unclosed)
			r, _ = cancelable(t, nil) // and one that is not canceled leaves no goroutine
			resp, err := tr.RoundTrip(r)
			require.NoError(t, err)
			assert.Equal(t, "hello", readAll(t, resp.Body))
			require.NoError(t, resp.Body.Close())
			l.Close()
		})
	})
	t.Run("with a timeout of the client", func(t *testing.T) { // which makes a channel of its own
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			c := &http.Client{Timeout: time.Minute, Transport: clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})}
			mustGet(t, context.Background(), c, "http://api.example.com/v1/x") // nobody reads it
			assert.Equal(t, 1, inFlight(l))
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, 0, inFlight(l))
			l.Close()
		})
	})
}

// Where the deadline is nearer than a call takes, nobody waits in vain.
func TestTrap24_DeadlineShorterThanACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(&failsFirst{takes: 10 * time.Second}, l, clientwrap.Config{})
		busy := make(chan struct{})
		go func() { // the lane learns how long a call takes
			defer close(busy)
			for range 200 {
				_, _ = tr.RoundTrip(request(t, context.Background(), nil))
			}
		}()
		go func() {
			for range 200 {
				_, _ = tr.RoundTrip(request(t, context.Background(), nil))
			}
		}()
		time.Sleep(30*time.Minute + time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		resp, err := tr.RoundTrip(request(t, ctx, nil))
		rej := refusal(t, resp, err)
		assert.Equal(t, gate.Deadline, rej.Reason)
		assert.Zero(t, time.Since(begin), "at once")
		require.NoError(t, ctx.Err())
		assert.NotNil(t, resp, "the context still lives: this is a refusal like others")
		<-busy
		time.Sleep(time.Hour)
		l.Close()
	})
}

// A context that is done already takes nothing, room or not, and gets its own error.
func TestTrap25_AlreadyDone(t *testing.T) {
	l := slots(t, 1)
	sent := false
	tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		sent = true
		return hello(r)
	}), l, clientwrap.Config{})
	why := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	body := newSpy("x")
	resp, err := tr.RoundTrip(request(t, ctx, body))
	assert.Nil(t, resp)
	assert.Equal(t, why, err, "as http.Transport has it")
	assert.Nil(t, clientwrap.Refused(resp, err), "who left was not refused")

	late, cancelLate := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancelLate()
	_, err = tr.RoundTrip(request(t, late, nil))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.False(t, sent)
	assert.EqualValues(t, 1, body.closed.Load())
	assert.Equal(t, 0, inFlight(l))
}

// The text says that it is local, names lane, class, wait, place, limit, and what to do.
func TestTrap26_WhoIsToBlame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, func(c *inflight.Config) { c.QueueTimeout = 90 * time.Second })
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{AsError: true})
		defer hold(t, l)()
		_, err := get(t, gate.WithClass(context.Background(), gate.Bulk), &http.Client{Transport: tr}, "http://api.example.com/")
		require.EqualError(t, err, `Get "http://api.example.com/": refused locally by inflight: lane "http://api.example.com": `+
			`queue timeout after 90.0s at position 1 (class bulk, limit 1): raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane`)
		var urlErr *url.Error
		require.ErrorAs(t, err, &urlErr)
		assert.True(t, urlErr.Timeout())
		l.Close()
	})
}

// A refusal of ours is no outcome of the back end: nobody is told of one, and who
// counts failures can tell it apart.
func TestTrap27_PoisonsTheBreaker(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	seen := new(recorder)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	give := hold(t, l)
	resp, err := tr.RoundTrip(request(t, seen.in(context.Background()), nil))
	_ = refusal(t, resp, err)
	ctx, cancel := context.WithCancel(seen.in(context.Background()))
	cancel()
	_, err = tr.RoundTrip(request(t, ctx, nil))
	require.Error(t, err)
	assert.Empty(t, seen.observed())
	give()
	resp, err = tr.RoundTrip(request(t, seen.in(context.Background()), nil))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	samples := seen.observed()
	require.Len(t, samples, 1)
	assert.Equal(t, http.StatusOK, samples[0].Status)
	assert.Positive(t, samples[0].FirstByte)
	assert.NoError(t, samples[0].Err)
}

// Full, timed out, displaced, closed, and the caller's own end are different things.
func TestTrap28_FullOrTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1, func(c *inflight.Config) { c.MaxQueue, c.QueueTimeout = 1, time.Minute })
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		defer hold(t, l)()
		ask := func(class gate.Class) chan *gate.Rejection {
			out := make(chan *gate.Rejection, 1)
			go func() {
				resp, err := tr.RoundTrip(request(t, gate.WithClass(context.Background(), class), nil))
				out <- refusal(t, resp, err)
			}()
			synctest.Wait()
			return out
		}
		bulk := ask(gate.Bulk)
		assert.Equal(t, gate.QueueFull, (<-ask(gate.Bulk)).Reason)
		user := ask(gate.Interactive)
		assert.Equal(t, gate.Displaced, (<-bulk).Reason)
		assert.Equal(t, gate.QueueTimeout, (<-user).Reason)
		waits := ask(gate.Default)
		l.Close()
		assert.Equal(t, gate.ShuttingDown, (<-waits).Reason)
	})
}

// Nobody waits for ever, also without a deadline.
func TestTrap29_UnboundedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1) // as DefaultConfig has it
		defer hold(t, l)()
		begin := time.Now()
		resp, err := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{}).RoundTrip(request(t, context.Background(), nil))
		assert.Equal(t, gate.QueueTimeout, refusal(t, resp, err).Reason)
		assert.Equal(t, inflight.DefaultConfig().QueueTimeout, time.Since(begin))
		l.Close()
	})
}

// A request that is not sent has its body closed, once, and its writer unblocks; one
// that is sent has it closed by the base alone. (G2, T49)
func TestTrap30_RequestBody(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
	give := hold(t, l)
	refused := newSpy("x")
	resp, err := tr.RoundTrip(request(t, context.Background(), refused))
	_ = refusal(t, resp, err)
	assert.EqualValues(t, 1, refused.closed.Load())

	pr, pw := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		_, err := io.Copy(pw, strings.NewReader(strings.Repeat("x", 1<<20)))
		wrote <- err
	}()
	resp, err = tr.RoundTrip(request(t, context.Background(), pr))
	_ = refusal(t, resp, err)
	require.ErrorIs(t, <-wrote, io.ErrClosedPipe)
	give()

	sent := newSpy("x")
	resp, err = tr.RoundTrip(request(t, context.Background(), sent))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.EqualValues(t, 1, sent.closed.Load())

	broken := newSpy("x")
	bad := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{Lane: func(*http.Request) string { panic("boom") }})
	assert.PanicsWithValue(t, "boom", func() { _, _ = bad.RoundTrip(request(t, context.Background(), broken)) })
	assert.EqualValues(t, 1, broken.closed.Load())
	assert.Equal(t, 0, inFlight(l))
}

// Exactly one of a response and an error comes back, whatever the base returns.
func TestTrap31_ResponseAndError(t *testing.T) {
	l := slots(t, 1)
	body := newSpy("x")
	both := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		return answer(r, 200, body), errBase
	}), l, clientwrap.Config{})
	resp, err := both.RoundTrip(request(t, context.Background(), nil))
	assert.Nil(t, resp)
	require.ErrorIs(t, err, errBase)
	require.EqualError(t, err, "clientwrap: the base transport clientwrap_test.roundTrip returned a response and an error: base failed")
	assert.EqualValues(t, 1, body.closed.Load())

	none := clientwrap.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil }), l, clientwrap.Config{})
	resp, err = none.RoundTrip(request(t, context.Background(), nil))
	assert.Nil(t, resp)
	require.EqualError(t, err, "clientwrap: the base transport clientwrap_test.roundTrip returned neither a response nor an error")
	assert.Equal(t, 0, inFlight(l))
}
