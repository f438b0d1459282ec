package prebody

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"
)

// probing is how long the self-test may take. It takes a millisecond.
const probing = 10 * time.Second

// contextOf returns the request that h is the header of. It must be one of a server's.
func contextOf(h *fasthttp.RequestHeader) *fasthttp.RequestCtx {
	var rc fasthttp.RequestCtx
	at := unsafe.Offsetof(rc.Request) + unsafe.Offsetof(rc.Request.Header)
	return (*fasthttp.RequestCtx)(unsafe.Add(unsafe.Pointer(h), -int(at)))
}

// probe sends two requests through a server and says what is not as this package
// needs it. find is contextOf. In the first request nothing is done with what it returns
// but to compare it.
func probe(find func(*fasthttp.RequestHeader) *fasthttp.RequestCtx) error {
	t := &test{find: find}
	srv := &fasthttp.Server{
		Handler: t.handle, HeaderReceived: t.received, NoDefaultServerHeader: true, NoDefaultDate: true, Logger: silent{},
	}
	client, server := net.Pipe()
	defer client.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer server.Close()
		_ = srv.ServeConn(server) // what it did not do, the client finds
	}()
	if err := t.ask(client); err != nil {
		return err
	}
	_ = client.Close()
	<-ended
	if !t.closed {
		return errors.New("user values are not closed with their request")
	}
	return nil
}

// test is what the two requests of a probe find. Only the server's goroutine writes it,
// and the client reads after its answer.
type test struct {
	find   func(*fasthttp.RequestHeader) *fasthttp.RequestCtx
	n      int
	header *fasthttp.RequestHeader
	found  *fasthttp.RequestCtx
	closed bool
}

type testKey struct{}

// Close implements io.Closer.
func (t *test) Close() error {
	t.closed = true
	return nil
}

func (t *test) received(h *fasthttp.RequestHeader) (conf fasthttp.RequestConfig) {
	if t.n++; t.n == 1 {
		t.header, t.found = h, t.find(h)
		return conf
	}
	t.find(h).SetUserValue(testKey{}, t)
	h.SetContentLength(0)
	h.Del(fasthttp.HeaderExpect)
	return conf
}

func (t *test) handle(rc *fasthttp.RequestCtx) {
	ok := false
	switch t.n {
	case 1:
		ok = t.header == &rc.Request.Header && t.found == rc && len(rc.Request.Body()) == 4
	case 2:
		ok = rc.UserValue(testKey{}) == t && len(rc.Request.Body()) == 0
	}
	if !ok {
		rc.SetStatusCode(fasthttp.StatusInternalServerError)
	}
}

// ask is the client: a request that is read, and one that must not be.
func (t *test) ask(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(probing)); err != nil {
		return err
	}
	r := bufio.NewReader(c)
	for _, q := range []struct{ request, wrong string }{
		{"Content-Length: 4\r\n\r\nbody", "the header of HeaderReceived is not that of its request"},
		{"Content-Length: 1000000\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", "a request cannot be kept from being read"},
	} {
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: probe\r\n"+q.request); err != nil {
			return fmt.Errorf("self-test: %w", err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return fmt.Errorf("self-test: %w", err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			return errors.New(q.wrong)
		}
	}
	return nil
}

// silent is a log that goes nowhere.
type silent struct{}

// Printf implements fasthttp.Logger.
func (silent) Printf(string, ...any) {}
