package clientwrap_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The traps of this file: when does a slot come back?

// The head is here, the body still streams: the slot is held. (G1)
func TestTrap01_ReleasedAtHeaders(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *httptest.Server{"http1": serve, "http2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1, nobodyWaits)
			s := start(t, stream(t))
			c := clientOf(t, s, l, clientwrap.Config{})
			first := mustGet(t, context.Background(), c, s.URL)
			assert.Equal(t, 1, lane(t, l).Inflight)
			resp, err := get(t, context.Background(), c, s.URL)
			_ = refusal(t, resp, err)
			require.NoError(t, first.Body.Close())
			assert.Equal(t, 0, lane(t, l).Inflight)
			require.NoError(t, mustGet(t, context.Background(), c, s.URL).Body.Close())
		})
	}
}

// Who wants it released at the head says so.
func TestTrap02_HeadersOnRequest(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	s := serve(t, stream(t))
	c := clientOf(t, s, l, clientwrap.Config{ReleaseAtHeaders: true})
	for range 3 {
		resp := mustGet(t, context.Background(), c, s.URL)
		t.Cleanup(func() { _ = resp.Body.Close() })
		assert.Equal(t, 0, lane(t, l).Inflight)
	}
}

// Callers that forget to close the body of an error: the end of their context gives
// the slot back, and the leak can be seen until somebody closes it.
func TestTrap03_BodyNeverClosed(t *testing.T) {
	const calls = 100
	l := slots(t, 4)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such thing", http.StatusNotFound) })
	base := s.Client().Transport
	tr := clientwrap.NewTransport(base, l, clientwrap.Config{})
	c := &http.Client{Transport: tr}
	var open []io.Closer
	for range calls {
		ctx, cancel := context.WithCancel(context.Background())
		resp := mustGet(t, ctx, c, s.URL)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		cancel()
		open = append(open, resp.Body)
	}
	comesTo(t, 0, func() int { return inFlight(l) })
	comesTo(t, calls, func() int { return int(tr.Snapshot().Unclosed) })
	for _, b := range open {
		_ = b.Close()
		_ = b.Close()
	}
	assert.Zero(t, tr.Snapshot().Unclosed)
}

// Who reads to the end and never closes.
func TestTrap04_ReadToTheEndOnly(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<16)) })
	c := clientOf(t, s, l, clientwrap.Config{})
	for range 3 {
		resp := mustGet(t, context.Background(), c, s.URL)
		assert.Len(t, readAll(t, resp.Body), 1<<16)
		assert.Equal(t, 0, lane(t, l).Inflight)
	}
}

// Who stops before the end: a JSON decoder, a reader of events. Close is all there is.
func TestTrap05_StopsBeforeTheEnd(t *testing.T) {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	late := func(w http.ResponseWriter, r *http.Request) { // the terminator comes late
		_, _ = io.WriteString(w, r.URL.Query().Get("say"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}
	for name, test := range map[string]struct {
		say  string
		read func(*testing.T, io.Reader)
	}{
		"json": {`{"a": 1}`, func(t *testing.T, r io.Reader) {
			t.Helper()
			var v map[string]int
			require.NoError(t, json.NewDecoder(r).Decode(&v))
			assert.Equal(t, map[string]int{"a": 1}, v)
		}},
		"events": {"data: 1\n\ndata: [DONE]\n\n", func(t *testing.T, r io.Reader) {
			t.Helper()
			lines := bufio.NewScanner(r)
			for lines.Scan() && lines.Text() != "data: [DONE]" {
			}
			assert.Equal(t, "data: [DONE]", lines.Text())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1, nobodyWaits)
			s := serve(t, late)
			c := clientOf(t, s, l, clientwrap.Config{})
			resp := mustGet(t, context.Background(), c, s.URL+"/?say="+url.QueryEscape(test.say))
			test.read(t, resp.Body)
			assert.Equal(t, 1, lane(t, l).Inflight, "no end was seen")
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 0, lane(t, l).Inflight)
		})
	}
}

// The end, then Close, twice, in several goroutines, with the context: one slot.
func TestTrap06_DoubleRelease(t *testing.T) {
	l := slots(t, 2, nobodyWaits)
	c := &http.Client{Transport: clientwrap.NewTransport(roundTrip(hello), l, clientwrap.Config{})}
	other := mustGet(t, context.Background(), c, "http://api.example.com/") // holds one all the time
	for range 200 {
		ctx, cancel := context.WithCancel(context.Background())
		resp := mustGet(t, ctx, c, "http://api.example.com/")
		var all sync.WaitGroup
		all.Go(func() { _, _ = io.Copy(io.Discard, resp.Body) })
		all.Go(func() { _ = resp.Body.Close() })
		all.Go(func() { _ = resp.Body.Close() })
		all.Go(cancel)
		all.Wait()
		comesTo(t, 1, func() int { return lane(t, l).Inflight })
	}
	require.NoError(t, other.Body.Close())
	assert.Equal(t, 0, lane(t, l).Inflight)
}

// Responses without a body keep the body that they have and no slot.
func TestTrap07_NoBody(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/204" {
			w.WriteHeader(http.StatusNoContent)
		}
	})
	tr := clientwrap.NewTransport(s.Client().Transport, l, clientwrap.Config{})
	for range 3 { // nothing of this is closed
		for _, what := range []struct{ method, path string }{{"HEAD", "/"}, {"GET", "/204"}, {"GET", "/empty"}, {"HEAD", "/204"}} {
			req, err := http.NewRequest(what.method, s.URL+what.path, http.NoBody)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Nil(t, clientwrap.Refused(resp, err), "%v", what)
			assert.Equal(t, http.NoBody, resp.Body, "%v", what)
			assert.Equal(t, 0, lane(t, l).Inflight)
		}
	}
	odd := text("a body that HEAD does not have")
	tr = clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) { return answer(r, 200, odd), nil }), l, clientwrap.Config{})
	req, err := http.NewRequest(http.MethodHead, s.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	assert.Equal(t, odd, resp.Body)
	assert.Equal(t, 0, lane(t, l).Inflight)
}

// A protocol switch keeps the writing side, and holds its slot until it is closed. The
// context of the request does not end the connection, so it does not end the slot. (T50)
func TestTrap08_Upgrade(t *testing.T) {
	l := slots(t, 1, nobodyWaits)
	backend := serve(t, echoUpgrade)
	target, err := url.Parse(backend.URL)
	require.NoError(t, err)
	tr := clientwrap.NewTransport(backend.Client().Transport, l, clientwrap.Config{})

	t.Run("direct", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, backend.URL, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		conn, writes := resp.Body.(io.ReadWriteCloser)
		require.True(t, writes, "%T", resp.Body)
		cancel()
		runtime.Gosched()
		for range 3 {
			_, err = io.WriteString(conn, "hello\n")
			require.NoError(t, err)
			line := make([]byte, 6)
			_, err = io.ReadFull(conn, line)
			require.NoError(t, err)
			assert.Equal(t, "hello\n", string(line))
			assert.Equal(t, 1, lane(t, l).Inflight)
		}
		require.NoError(t, conn.Close())
		assert.Equal(t, 0, lane(t, l).Inflight)
	})
	t.Run("through a reverse proxy", func(t *testing.T) {
		proxy := serve(t, (&httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: tr,
		}).ServeHTTP)
		conn, answers := dialUpgrade(t, proxy.URL)
		_, err := io.WriteString(conn, "ping\n")
		require.NoError(t, err)
		line, err := answers.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "ping\n", line)
		assert.Equal(t, 1, lane(t, l).Inflight)
		require.NoError(t, conn.Close())
		comesTo(t, 0, func() int { return lane(t, l).Inflight })
	})
}

// The wrapped body has the methods that the base's has, and no others.
func TestTrap08_OnlyWhatTheBaseHas(t *testing.T) {
	type readWriter struct {
		io.ReadCloser
		io.Writer
	}
	type halfCloser struct {
		readWriter
		halfClose
	}
	for name, test := range map[string]struct {
		inner              io.ReadCloser
		writes, closeWrite bool
	}{
		"reader": {text("x"), false, false},
		"writer": {readWriter{text("x"), io.Discard}, true, false},
		"half":   {halfCloser{readWriter: readWriter{text("x"), io.Discard}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1)
			tr := clientwrap.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				return answer(r, http.StatusSwitchingProtocols, test.inner), nil
			}), l, clientwrap.Config{})
			resp, err := tr.RoundTrip(request(t, context.Background(), nil))
			require.NoError(t, err)
			_, writes := resp.Body.(io.Writer)
			half, closes := resp.Body.(interface{ CloseWrite() error })
			assert.Equal(t, test.writes, writes)
			assert.Equal(t, test.closeWrite, closes)
			if closes {
				require.ErrorIs(t, half.CloseWrite(), errHalf)
			}
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, 0, lane(t, l).Inflight)
		})
	}
}

var errHalf = errors.New("half closed")

type halfClose struct{}

func (halfClose) CloseWrite() error { return errHalf }

// The context ends and the body is abandoned: the transport drops the connection, and
// the slot comes back.
func TestTrap09_CanceledAndAbandoned(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *httptest.Server{"http1": serve, "http2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			l := slots(t, 1)
			left := make(chan struct{})
			s := start(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(left)
			})
			c := clientOf(t, s, l, clientwrap.Config{})
			ctx, cancel := context.WithCancel(context.Background())
			mustGet(t, ctx, c, s.URL)
			assert.Equal(t, 1, lane(t, l).Inflight)
			cancel()
			comesTo(t, 0, func() int { return lane(t, l).Inflight })
			<-left
		})
	}
}
