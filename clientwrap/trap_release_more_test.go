package clientwrap_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// echoUpgrade switches protocols and sends back what it gets.
func echoUpgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		http.Error(w, "upgrade", http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

// dialUpgrade switches protocols with a server by hand.
func dialUpgrade(tb testing.TB, server string) (net.Conn, *bufio.Reader) {
	tb.Helper()
	u, err := url.Parse(server)
	require.NoError(tb, err)
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", u.Host)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	require.NoError(tb, conn.SetDeadline(time.Now().Add(guard)))
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(tb, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(tb, err)
	require.Equal(tb, http.StatusSwitchingProtocols, resp.StatusCode)
	return conn, in
}

// A stream that has stalled is ended by MaxHold: its slot comes back, its reader gets
// the reason, the back end sees it go, and it is counted.
func TestTrap11_StalledStream(t *testing.T) {
	for name, upgrade := range map[string]bool{"stream": false, "upgraded": true} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1)
			s := serve(t, stream(t))
			if upgrade {
				s = serve(t, echoUpgrade)
			}
			tr, resp := headWithin(t, s, l, upgrade)
			_, err := io.ReadAll(resp.Body)
			var rej *gate.Rejection
			require.ErrorAs(t, err, &rej)
			assert.Equal(t, gate.MaxHold, rej.Reason)
			require.ErrorIs(t, err, gate.MaxHold)
			require.NotErrorIs(t, err, context.Canceled)
			comesTo(t, 0, func() int { return lane(t, l).Inflight })
			assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1, Unclosed: 1}, tr.Snapshot())
			_, again := resp.Body.Read(make([]byte, 1))
			assert.Equal(t, err, again)
			if w, ok := resp.Body.(io.Writer); ok {
				_, err = w.Write([]byte("x"))
				require.ErrorIs(t, err, gate.MaxHold)
			}
			_ = resp.Body.Close()
			assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1}, tr.Snapshot())
		})
	}
}

// headWithin gets a response whose head arrives before MaxHold, however slow this
// machine is.
func headWithin(t *testing.T, s *httptest.Server, l *inflight.Limiter, upgrade bool) (*clientwrap.Transport, *http.Response) {
	t.Helper()
	for most := 50 * time.Millisecond; ; most *= 2 {
		require.Less(t, most, guard)
		tr := clientwrap.NewTransport(s.Client().Transport, l, clientwrap.Config{MaxHold: most})
		req, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
		require.NoError(t, err)
		if upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "echo")
		}
		resp, err := tr.RoundTrip(req)
		if clientwrap.Refused(resp, err) == nil {
			require.NoError(t, err)
			return tr, resp
		}
	}
}

// The time to the response head counts too. A base that never comes back keeps no slot,
// and what it was told stays one observation.
func TestTrap11_StalledBeforeTheHead(t *testing.T) {
	for name, test := range map[string]struct{ deaf, asError bool }{
		"the base hears of it":    {false, false},
		"the base is deaf":        {true, false},
		"refusals come as errors": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1)
				end := make(chan struct{})
				base := roundTrip(func(r *http.Request) (*http.Response, error) {
					if test.deaf {
						<-end
						return nil, errors.New("at last")
					}
					<-r.Context().Done()
					require.ErrorIs(t, context.Cause(r.Context()), gate.MaxHold)
					return nil, r.Context().Err()
				})
				seen := new(recorder)
				tr := clientwrap.NewTransport(base, l, clientwrap.Config{MaxHold: time.Minute, AsError: test.asError})
				begin := time.Now()
				var resp *http.Response
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					resp, err = tr.RoundTrip(request(t, seen.in(context.Background()), nil))
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, 0, inFlight(l))
				close(end)
				<-done
				rej := refusal(t, resp, err)
				assert.Equal(t, gate.MaxHold, rej.Reason)
				assert.Equal(t, test.asError, err != nil)
				assert.Equal(t, time.Minute, time.Since(begin))
				assert.Equal(t, `refused locally by clientwrap: lane "http://api.example.com": max hold (class default, limit 60000 ms): `+
					`the call was ended: raise MaxHold, or ask for less in one call`, rej.Error())
				assert.Equal(t, clientwrap.Snapshot{MaxHolds: 1}, tr.Snapshot())
				samples := seen.observed()
				require.Len(t, samples, 1)
				require.ErrorIs(t, samples[0].Err, gate.MaxHold)
				l.Close()
			})
		})
	}
}

// MaxHold counts from the slot, not from the queue, and leaves what is over in time
// alone: no timer and no context stays behind.
func TestTrap11_InTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(t, 1)
		var cause context.Context
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			cause = r.Context()
			return hello(r)
		})
		tr := clientwrap.NewTransport(base, l, clientwrap.Config{MaxHold: time.Minute})
		give := hold(t, l)
		time.AfterFunc(10*time.Minute/3, give)
		resp, err := tr.RoundTrip(request(t, context.Background(), nil))
		require.NoError(t, err)
		require.Nil(t, clientwrap.Refused(resp, err))
		time.Sleep(59 * time.Second)
		require.NoError(t, cause.Err(), "reading is not over")
		assert.Equal(t, "hello", readAll(t, resp.Body))
		require.Error(t, cause.Err())
		time.Sleep(time.Hour)
		assert.Zero(t, tr.Snapshot())
		assert.Equal(t, "http://api.example.com/v1/x", resp.Request.URL.String())
		require.NoError(t, resp.Request.Context().Err(), "the response has the caller's request")
		l.Close()
	})
}

// A slow consumer holds its slot; who does not want that takes ReleaseAtHeaders, where
// MaxHold ends with the head and the body is read for as long as it takes.
func TestTrap12_SlowConsumer(t *testing.T) {
	for name, atHeaders := range map[string]bool{"default": false, "at headers": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := slots(t, 1)
				c := clientwrap.Config{ReleaseAtHeaders: atHeaders}
				if atHeaders {
					c.MaxHold = time.Minute
				}
				tr := clientwrap.NewTransport(roundTrip(hello), l, c)
				resp, err := tr.RoundTrip(request(t, context.Background(), nil))
				require.NoError(t, err)
				one := make([]byte, 1)
				for range 5 {
					_, err = resp.Body.Read(one)
					require.NoError(t, err)
					time.Sleep(time.Minute)
					assert.Equal(t, !atHeaders, inFlight(l) == 1)
				}
				_, err = resp.Body.Read(one)
				assert.Equal(t, io.EOF, err)
				assert.Equal(t, 0, inFlight(l))
				assert.Zero(t, tr.Snapshot())
				l.Close()
			})
		})
	}
}

var errBase = errors.New("base failed")

// Whatever the base does, the slot comes back. (T52)
func TestTrap13_BaseFails(t *testing.T) {
	read := errors.New("connection reset")
	for name, test := range map[string]struct {
		base   roundTrip
		panics any
		exits  bool
		err    error
		says   string
	}{
		"error":    {base: func(*http.Request) (*http.Response, error) { return nil, errBase }, err: errBase},
		"panic":    {base: func(*http.Request) (*http.Response, error) { panic("boom") }, panics: "boom"},
		"abort":    {base: func(*http.Request) (*http.Response, error) { panic(http.ErrAbortHandler) }, panics: http.ErrAbortHandler},
		"goexit":   {base: func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, exits: true},
		"nil body": {base: func(r *http.Request) (*http.Response, error) { return answer(r, 200, nil), nil }},
		"read": {base: func(r *http.Request) (*http.Response, error) {
			return answer(r, 200, io.NopCloser(io.MultiReader(text("x"), failing{read}))), nil
		}, err: read},
	} {
		for _, max := range []time.Duration{0, time.Hour} {
			t.Run(name+" "+max.String(), func(t *testing.T) {
				l := slots(t, 1)
				tr := clientwrap.NewTransport(test.base, l, clientwrap.Config{MaxHold: max})
				exited := true
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() {
						if p := recover(); p != nil {
							exited = false
							assert.Equal(t, test.panics, p)
						}
					}()
					resp, err := tr.RoundTrip(request(t, context.Background(), nil))
					if err == nil && resp.Body != nil {
						_, err = io.ReadAll(resp.Body)
					}
					exited = false
					assert.Nil(t, test.panics)
					assert.ErrorIs(t, err, test.err)
				}()
				<-done
				assert.Equal(t, test.exits, exited)
				assert.Equal(t, 0, inFlight(l))
			})
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
