package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
)

// bridged serves h behind Fiber on an address of its own until the test ends.
func bridged(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	ctx, cut := context.WithCancel(context.Background())
	app := fiber.New(fiber.Config{
		StreamRequestBody: true, DisablePreParseMultipartForm: true, DisableStartupMessage: true,
		DisableDefaultContentType: true, ReadBufferSize: fiberHeadBytes,
	})
	app.Use(fibergate.New(fibergate.Config{Gate: openGate{}}), func(c *fiber.Ctx) error {
		c.SetUserContext(served{ctx, c.UserContext()})
		return bridge(slog.New(slog.DiscardHandler), h)(c)
	})
	s := newFiberServer(app, slog.New(slog.DiscardHandler), cut)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-done)
	})
	return ln.Addr().String()
}

func dialTo(t *testing.T, addr string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(hang)))
	return newRawConn(t, conn)
}

// A handler sees what it sees behind net/http's server.
func TestBridgeRequests(t *testing.T) {
	see := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		r.Header.Del("Content-Length") // net/http's server leaves it there
		_, _ = fmt.Fprintln(w, r.Method, r.URL.String(), r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Host,
			r.ContentLength, r.TransferEncoding, r.Header, r.Close, len(body), err, r.RemoteAddr != "")
	}
	plain := httptest.NewServer(http.HandlerFunc(see))
	t.Cleanup(plain.Close)
	addr := bridged(t, see)
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
		"GET /a%2fb//c?x=%zz;y&z=1 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://b.example/c?d HTTP/1.1\r\nHost: b.example\r\n\r\n",
		"GET http://b.example:1/c HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\ncontent-type: text/plain\r\nX-Two: 1\r\nx-two: 2\r\n\r\nabc",
		"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"PUT /v1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nCookie: a=b; c=d\r\nCookie: a=e\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
		"POST /v1 HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n" + strings.Repeat("x", 100_000),
	} {
		want := dialTo(t, plain.Listener.Addr().String())
		want.say(request)
		_, expected := want.answer()
		got := dialTo(t, addr)
		got.say(request)
		_, answer := got.answer()
		assert.Equal(t, expected, answer, strings.SplitN(request, "\r\n", 2)[0])
	}
}

// An answer is the one that net/http's server makes of the same calls.
func TestBridgeAnswers(t *testing.T) {
	write := func(w http.ResponseWriter, n int) { _, _ = io.WriteString(w, strings.Repeat("x", n)) }
	handlers := map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"small":        func(w http.ResponseWriter, _ *http.Request) { write(w, 10) },
		"2 KiB":        func(w http.ResponseWriter, _ *http.Request) { write(w, 2048) },
		"more":         func(w http.ResponseWriter, _ *http.Request) { write(w, 2049) },
		"much":         func(w http.ResponseWriter, _ *http.Request) { write(w, 10); write(w, 300_000) },
		"status alone": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent); write(w, 1) },
		"known length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			write(w, 100_000)
		},
		"HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h["X-Two"], h["Set-Cookie"], h["Connection"] = []string{"1", "2"}, []string{"a=b; Path=/", "c=d"}, []string{"close"}
			h.Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusCreated)
			h.Set("X-Late", "1")
			write(w, 1)
		},
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // both are
			write(w, 1)
		},
		"trailers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("Content-Type", "text/plain")
			write(w, 5000)
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"X-More", "2")
		},
	}
	ask := func(method, addr string) (resp *http.Response, body int) {
		c := dialTo(t, addr)
		c.say(method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Header.Del("Date")
		return resp, len(text)
	}
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			plain := httptest.NewServer(h)
			t.Cleanup(plain.Close)
			var said, head [2]string
			for i, addr := range []string{plain.Listener.Addr().String(), bridged(t, h)} {
				resp, body := ask(http.MethodGet, addr)
				said[i] = fmt.Sprint(resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Trailer, body)
				resp, body = ask(http.MethodHead, addr)
				n := resp.ContentLength
				if n == 0 || name == "flushed" {
					n = -1 // fasthttp cannot leave a length open
				}
				head[i] = fmt.Sprint(resp.StatusCode, n, resp.Close, body)
			}
			assert.Equal(t, said[0], said[1])
			assert.Equal(t, head[0], head[1])
		})
	}
}

// What a handler has flushed does not wait for what it writes next, whatever is known of
// the answer's length.
func TestBridgeStreams(t *testing.T) {
	for _, length := range []string{"", "4"} {
		next := make(chan struct{})
		c := dialTo(t, bridged(t, func(w http.ResponseWriter, _ *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // it is one
			for i := range 4 {
				<-next
				_, _ = io.WriteString(w, strconv.Itoa(i))
			}
		}))
		c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(c.r, nil)
		require.NoError(t, err)
		var b [1]byte
		for i := range 4 {
			next <- struct{}{}
			_, err := io.ReadFull(resp.Body, b[:])
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(i), string(b[:]))
		}
		_, err = resp.Body.Read(b[:])
		require.ErrorIs(t, err, io.EOF)
	}
}

// An answer that its handler breaks off never looks whole.
func TestBridgeCuts(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"before the head": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"any panic":       func(http.ResponseWriter, *http.Request) { panic("a fault") },
		"kept so far": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		},
		"in chunks": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
			panic(http.ErrAbortHandler)
		},
		"of known length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "20000")
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
			panic(http.ErrAbortHandler)
		},
		"nothing of a known length": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "20000") },
		"too short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "20000")
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialTo(t, bridged(t, h))
			c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			_, _, err := c.tryAnswer()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			c.closed()
		})
	}
}

// An answer without a body may say how long the body would be.
func TestBridgeAnswersWithoutBody(t *testing.T) {
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		c := dialTo(t, bridged(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "20000")
			w.WriteHeader(status)
		}))
		for range 2 {
			c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, err := http.ReadResponse(c.r, nil)
			require.NoError(t, err)
			assert.Equal(t, status, resp.StatusCode)
		}
	}
}

// A client that leaves ends the handler's context as soon as a write fails, and nothing
// runs on; so does the end of the server.
func TestBridgeEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("clients", func(t *testing.T) {
		ended := make(chan error, 1)
		addr := bridged(t, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.WriteString(w, strings.Repeat("x", 10_000)); err != nil {
					<-r.Context().Done()
					ended <- r.Context().Err()
					return
				}
			}
		})
		for range 10 {
			c := dialTo(t, addr)
			// While a body is to come nobody looks whether the client is there.
			c.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", fiberPrefetch))
			_, err := bufio.NewReader(c).Peek(1000)
			require.NoError(t, err)
			c.reset()
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	})
	t.Run("clients that wait", func(t *testing.T) {
		ended := make(chan error, 1)
		began := make(chan struct{}, 1)
		addr := bridged(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			began <- struct{}{}
			<-r.Context().Done()
			ended <- r.Context().Err()
		})
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		} {
			c := dialTo(t, addr)
			c.say(request)
			<-began
			c.reset()
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	})
	t.Run("server", func(t *testing.T) {
		began := make(chan struct{}, 1)
		c := dialTo(t, bridged(t, func(_ http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}))
		c.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		<-began
	})
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, hang, 10*time.Millisecond)
}

// fasthttp lets pass what other servers read in another way. The gateway does not.
func TestHeadFaults(t *testing.T) {
	for head, status := range map[string]int{
		"Host: a\r\n":                      0,
		"Host: a\r\nContent-Length: 1\r\n": 0,
		"Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n":                   0,
		"Host: a\r\nTransfer-Encoding: Chunked\r\n":                               0,
		"Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n":                   400,
		"Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: -5\r\n":         400,
		"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n": 400,
		"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n":                         501,
		"Host: a\r\nHost: b\r\n":                                                  400,
		"":                                                                        400,
	} {
		var h fasthttp.RequestHeader
		require.NoError(t, h.Read(bufio.NewReader(strings.NewReader("POST /echo HTTP/1.1\r\n"+head+"\r\n"))), head)
		assert.Equal(t, status, headFault(&h), head)
	}
	var h fasthttp.RequestHeader
	require.NoError(t, h.Read(bufio.NewReader(strings.NewReader("def and more\r\nHost: a\r\n\r\n"))))
	assert.Equal(t, 400, headFault(&h))
}

// What is sent while the server looks whether its client is still there is the next
// request, and is not lost: neither what comes at once nor what comes in between.
func TestBridgePipelines(t *testing.T) {
	began, next := make(chan struct{}), make(chan struct{})
	c := dialTo(t, bridged(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		began <- struct{}{}
		<-next
		assert.NoError(t, r.Context().Err())
		_, _ = io.WriteString(w, r.Method+r.URL.Path+string(body))
	}))
	request := func(path string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
	}
	c.say(request("/1") + request("/2"))
	for _, later := range []string{"/3", "/4", "/5"} {
		<-began
		c.say(request(later))
		next <- struct{}{}
	}
	for range 2 {
		<-began
		next <- struct{}{}
	}
	for i := range 5 {
		_, answer := c.answer()
		assert.Equal(t, "POST/"+strconv.Itoa(i+1)+"{}", answer)
	}
}
