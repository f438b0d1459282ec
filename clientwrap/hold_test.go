package clientwrap_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A base that answers after MaxHold has ended the exchange: the response's body fails
// at once, and the connection of a protocol switch is closed.
func TestAnswerAfterMaxHold(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusSwitchingProtocols} {
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			body := newSpy("too late")
			seen := new(recorder)
			tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Minute)
				return answer(r, status, body), nil
			}), l, clientwrap.Config{MaxHold: time.Minute})
			resp, err := tr.RoundTrip(request(t, seen.in(context.Background()), nil))
			require.NoError(t, err)
			assert.Len(t, seen.observed(), 1)
			n, err := resp.Body.Read(make([]byte, 1))
			assert.Zero(t, n)
			require.ErrorIs(t, err, gate.MaxHold)
			assert.Equal(t, status == http.StatusSwitchingProtocols, body.closed.Load() > 0)
			assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1, Unclosed: 1}, tr.Snapshot())
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1}, tr.Snapshot())
			l.Close()
		})
	}
}

// Under MaxHold the caller's context ends the exchange as ever, and with it the watch.
func TestContextUnderMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		var sent context.Context
		tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = r.Context()
			return hello(r)
		}), l, clientwrap.Config{MaxHold: time.Minute})
		ctx, cancel := context.WithCancel(context.Background())
		resp, err := tr.RoundTrip(request(t, ctx, nil))
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		assert.Equal(t, 0, inFlight(l))
		require.ErrorIs(t, context.Cause(sent), context.Canceled)
		time.Sleep(time.Hour)
		assert.Equal(t, clientwrap.Snapshot{Unclosed: 1}, tr.Snapshot(), "not cut")
		assert.Equal(t, "hello", readAll(t, resp.Body), "what is here already can be read")
		assert.Zero(t, tr.Snapshot())
		l.Close()
	})
}

// The watch is over with the body, without one it is over with the head.
func TestWatchEnds(t *testing.T) {
	for name, end := range map[string]func(*http.Response){
		"closed": func(r *http.Response) { _ = r.Body.Close() },
		"read":   func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body) },
		"none":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1)
				var sent context.Context
				tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
					sent = r.Context()
					if end == nil {
						return answer(r, 200, http.NoBody), nil
					}
					return hello(r)
				}), l, clientwrap.Config{MaxHold: time.Minute})
				resp, err := tr.RoundTrip(request(t, context.Background(), nil))
				require.NoError(t, err)
				if end != nil {
					require.NoError(t, sent.Err())
					end(resp)
				}
				require.Error(t, sent.Err(), "nothing is left that could be canceled")
				time.Sleep(time.Hour)
				assert.Zero(t, tr.Snapshot())
				l.Close()
			})
		})
	}
}

// A Cancel channel set by hand ends what MaxHold watches; one that is never closed leaves
// nothing behind after a wait.
func TestCancelChannelUnderMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		var sent context.Context
		tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = r.Context()
			return hello(r)
		}), l, clientwrap.Config{MaxHold: time.Minute})
		never := request(t, context.Background(), nil)
		setCancel(never, make(chan struct{}))
		time.AfterFunc(time.Second, hold(t, l))
		resp, err := tr.RoundTrip(never)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close()) // a goroutine that stayed would fail the test at its end

		soon, ch := request(t, context.Background(), nil), make(chan struct{})
		setCancel(soon, ch)
		_, err = tr.RoundTrip(soon)
		require.NoError(t, err)
		require.NoError(t, sent.Err())
		close(ch)
		synctest.Wait()
		assert.Equal(t, 0, inFlight(l))
		require.Error(t, sent.Err())
		l.Close()
	})
}

// A Cancel channel set by hand beside a context that can end: both end the exchange.
func TestCancelChannelAndContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		tr := clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})
		ctx, cancel := context.WithCancel(context.Background())
		r := request(t, ctx, nil)
		setCancel(r, make(chan struct{}))
		_, err := tr.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, 1, inFlight(l))
		cancel()
		synctest.Wait()
		assert.Equal(t, 0, inFlight(l))
		_, err = tr.RoundTrip(r)
		require.ErrorIs(t, err, context.Canceled)
		l.Close()
	})
}

// Whoever has left before a base that is deaf comes back hears of that as from any
// transport: there is no response for them. (Trap 31)
func TestContextEndsAfterTheCut(t *testing.T) {
	for _, asError := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := slots(t, 1)
			tr := clientwrap.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Minute)
				return nil, errBase
			}), l, clientwrap.Config{MaxHold: time.Minute, AsError: asError})
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(90*time.Second, cancel)
			resp, err := tr.RoundTrip(request(t, ctx, nil))
			assert.Nil(t, resp)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, gate.MaxHold)
			assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1}, tr.Snapshot())
			l.Close()
		})
	}
}
