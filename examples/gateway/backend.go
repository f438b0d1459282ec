package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
)

// backend is where calls are passed on to.
type backend struct {
	url       *url.URL
	key       string // presented to it in place of the client's; "" = the client's goes on
	transport *http.Transport
	stop      func() // ends what the gateway has started itself
}

// upstreamKey is the variable with the key that the back end wants.
const upstreamKey = "GATEWAY_UPSTREAM_KEY"

// openBackend makes the way to the back end at address, or to one in this process where
// address is "". Its caller owes it a close.
func openBackend(ctx context.Context, address, key string, log *slog.Logger) (*backend, error) {
	if !visible(key) {
		return nil, fmt.Errorf("%s has a character that a header cannot carry: want visible ASCII without spaces", upstreamKey)
	}
	b := &backend{key: key, transport: newTransport(), stop: func() {}}
	var err error
	if address != "" {
		b.url, err = parseUpstream(address)
		return b, err
	}
	if b.url, b.stop, err = startMock(ctx); err != nil {
		return nil, err
	}
	log.Info("no -upstream: calls go to a mock back end in this process", "url", b.url.String())
	return b, nil
}

// close ends the connections, which must be idle, and what openBackend started.
func (b *backend) close() {
	b.transport.CloseIdleConnections()
	b.stop()
}

// parseUpstream reads the flag. Its errors hold no password.
func parseUpstream(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("-upstream is no URL: want one such as http://127.0.0.1:8081")
	}
	var wrong string
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		wrong = "want one such as http://127.0.0.1:8081"
	case u.User != nil:
		wrong = "it must hold no user or password; for a key see " + upstreamKey
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1"):
		wrong = "leave /v1 out: the paths of the calls have it"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		wrong = "it must have no query and no fragment"
	default:
		return u, nil
	}
	return nil, fmt.Errorf("-upstream is %q: %s", u.Redacted(), wrong)
}

// newTransport bounds what a back end can cost that does not answer. A whole answer
// may take its model minutes, so the time to its head is bounded generously.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    256, // it has one host
		IdleConnTimeout:        90 * time.Second,
		ResponseHeaderTimeout:  15 * time.Minute,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // answers pass as they are
	}
}

// startMock serves a mock back end on a free port of this machine until stop is called.
func startMock(ctx context.Context) (at *url.URL, stop func(), err error) {
	mock, err := upstream.New(upstream.DefaultConfig())
	if err != nil {
		return nil, nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	srv := &http.Server{Handler: mock, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // until it is closed
	}()
	stop = func() {
		mock.Close()
		_ = srv.Close()
		<-done
	}
	return &url.URL{Scheme: "http", Host: ln.Addr().String()}, stop, nil
}

// seldom lets something be logged once a second at most.
type seldom struct {
	last atomic.Int64 // Unix time of the last one, in nanoseconds
	more atomic.Int64 // how many were left out since
}

// do calls log with how many were left out before it, or leaves this one out.
func (s *seldom) do(log func(more int64)) {
	now, last := time.Now().UnixNano(), s.last.Load()
	if now-last < int64(time.Second) || !s.last.CompareAndSwap(last, now) {
		s.more.Add(1)
		return
	}
	log(s.more.Swap(0))
}
