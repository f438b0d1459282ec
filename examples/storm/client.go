package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// verdict is what became of a request.
type verdict string

const (
	answered verdict = "answered" // 200 with the right byte count and digest, or a chat completion
	refused  verdict = "refused"  // an answer that names headgate's reason, or has a status that another library refuses with
	wrong    verdict = "wrong"    // any other answer
	lost     verdict = "lost"     // no answer, or one cut short
)

// outcome is what became of a call, or of one of its parts.
type outcome struct {
	at      time.Duration // when the call was due
	kind    kind
	size    int64         // of its body
	took    time.Duration // from then to the end of the answer
	verdict verdict
	why     string // the reason, or what was wrong
	proper  bool   // it is a refusal that says whether to come back, and when
}

// patience is how much longer than the hold a client waits for its answer.
const patience = 2 * time.Minute

// client sends calls to the app.
type client struct {
	base   string // of its URLs
	http   *http.Client
	pool   pool
	flight *flight
	// refusals are the statuses with which the app refuses, besides what names headgate's reason.
	refusals []int
}

func newClient(base string, p pool) *client {
	return &client{
		base: base, pool: p, flight: &flight{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}},
	}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do sends one call that is due at this time, and returns what became of it, or of each
// of its parts.
func (c *client) do(ctx context.Context, k call, due time.Time) []outcome {
	ctx, cancel := context.WithTimeout(ctx, k.hold+patience)
	defer cancel()
	var ends []outcome
	if k.kind == echoed {
		ends = []outcome{c.send(ctx, k, due)}
	} else {
		ends = c.ask(ctx, k)
	}
	took := time.Since(due)
	for i := range ends {
		ends[i].at, ends[i].kind, ends[i].size, ends[i].took = k.at, k.kind, k.size, took
	}
	return ends
}

func (c *client) send(ctx context.Context, k call, due time.Time) outcome {
	to := c.base + "/echo?" + url.Values{"hold": {k.hold.String()}}.Encode()
	body := &counted{r: pace(ctx, c.pool.body(k), k.size, k.rate, due), flight: c.flight}
	defer body.done()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, body)
	if err != nil {
		return outcome{verdict: lost, why: err.Error()}
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	if r.ContentLength = k.size; k.size == 0 {
		r.Body = http.NoBody // else 0 means unknown
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return outcome{verdict: lost, why: cause(err)}
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return outcome{verdict: lost, why: cause(err)}
	}
	v, why := c.judge(k, resp, text)
	return outcome{verdict: v, why: why, proper: v == refused && tellsWhen(resp)}
}

// tellsWhen reports whether a refusal says what the client can do: that this body will
// never do (413), or when to come again (503 with Retry-After).
func tellsWhen(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusRequestEntityTooLarge:
		return true
	case http.StatusServiceUnavailable:
		s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		return err == nil && s > 0
	}
	return false
}

// judge says what an answer is.
func (c *client) judge(k call, resp *http.Response, text []byte) (verdict, string) {
	if reason := resp.Header.Get(gate.MarkerHeader); reason != "" {
		return refused, reason
	}
	if slices.Contains(c.refusals, resp.StatusCode) {
		return refused, fmt.Sprintf("status %d", resp.StatusCode)
	}
	if resp.StatusCode != http.StatusOK {
		return wrong, fmt.Sprintf("status %d", resp.StatusCode)
	}
	var echo struct {
		Bytes  *int64 `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	switch err := json.Unmarshal(text, &echo); {
	case err != nil || echo.Bytes == nil:
		return wrong, "not an echo"
	case *echo.Bytes != k.size:
		return wrong, "byte count"
	case echo.SHA256 != k.sum:
		return wrong, "digest"
	}
	return answered, ""
}

// cause names why there was no answer.
func cause(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "server closed idle connection"): // net/http exports no name for it
		return "connection closed"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "other"
}

// flight counts the body bytes that were sent for requests which are not over.
type flight struct {
	mu        sync.Mutex
	now, peak int64
}

func (f *flight) add(n int64) {
	f.mu.Lock()
	f.now += n
	f.peak = max(f.peak, f.now)
	f.mu.Unlock()
}

// read returns the bytes in flight and the most there were.
func (f *flight) read() (now, peak int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.peak
}

// counted is a body whose bytes are in flight from when they are read until done.
type counted struct {
	r      io.Reader
	flight *flight

	mu   sync.Mutex
	sent int64
	over bool // the transport may read on for a moment after it has answered
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.sent += int64(n)
		c.flight.add(int64(n))
	}
	return n, err
}

func (c *counted) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		c.flight.add(-c.sent)
	}
}
