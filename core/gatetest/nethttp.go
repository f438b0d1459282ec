package gatetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
)

// HTTP is the part of an [Exchange] that frameworks over net/http have in common.
// Embed it, and set R anew whenever a helper of the adapter has made a copy of it.
type HTTP struct {
	// What the handler was given, or a later copy.
	W http.ResponseWriter
	R *http.Request
}

func (x *HTTP) writer() http.ResponseWriter { return x.W }

// Header implements [Exchange].
func (x *HTTP) Header(name string) string { return x.R.Header.Get(name) }

// Body implements [Exchange].
func (x *HTTP) Body() io.Reader { return x.R.Body }

// Trailer implements [Exchange].
func (x *HTTP) Trailer(name string) string { return x.R.Trailer.Get(name) }

// Reply implements [Exchange].
func (x *HTTP) Reply(status int, body string) {
	x.W.WriteHeader(status)
	if status >= 200 {
		_, _ = io.WriteString(x.W, body)
	}
}

// SetTrailer implements [Exchange].
func (x *HTTP) SetTrailer(name, value string) { x.W.Header().Set(http.TrailerPrefix+name, value) }

// Stream implements [Exchange]. The writer must be a Flusher itself.
func (x *HTTP) Stream(contentType string, f func(w io.Writer, flush func() error)) {
	x.W.Header().Set("Content-Type", contentType)
	x.W.WriteHeader(http.StatusOK)
	flusher, ok := x.W.(http.Flusher)
	if !ok {
		panic(fmt.Sprintf("gatetest: a %T cannot flush", x.W))
	}
	flusher.Flush()
	f(x.W, http.NewResponseController(x.W).Flush)
}

// Upgrade implements [Exchange]. The writer must be a Hijacker itself.
func (x *HTTP) Upgrade(header map[string]string, f func(io.ReadWriter)) error {
	hijacker, ok := x.W.(http.Hijacker)
	if !ok {
		return fmt.Errorf("gatetest: a %T cannot be hijacked", x.W)
	}
	conn, rw, err := hijacker.Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	head := "HTTP/1.1 101 Switching Protocols\r\n"
	for name, value := range header {
		head += fmt.Sprintf("%s: %s\r\n", name, value)
	}
	_, _ = io.WriteString(conn, head+"\r\n") // if the client has left, f will see it
	f(struct {
		*bufio.Reader
		io.Writer
	}{rw.Reader, conn})
	return nil
}

// Serve starts a net/http server with h on l, as o wants it. h is the whole app.
func Serve(l net.Listener, o Options, h http.Handler) Server {
	if o.script.timeout > 0 {
		h = http.TimeoutHandler(h, o.script.timeout, lateText)
	}
	srv := &http.Server{
		Handler: o.script.watched(h), ErrorLog: o.ErrorLog, TLSConfig: o.TLS,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, //nolint:gosec // a case sets what it needs
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 60, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: 60 * streamWindow,
		},
	}
	go func() { // ends when the server is closed
		if o.TLS != nil {
			_ = srv.ServeTLS(l, "", "")
		} else {
			_ = srv.Serve(l)
		}
	}()
	return srv
}

// lateText is what a timeout answers.
const lateText = "late"

// streamWindow is how much of a body an HTTP/2 client may send unread.
const streamWindow = 64 << 10

// watched notes the writer that the server has made.
func (c *script) watched(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.writer = w
		c.mu.Unlock()
		h.ServeHTTP(w, r)
	})
}
