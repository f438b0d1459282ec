package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A body that no route reads is not waited for: the answer comes first and the connection
// ends, where no gate is asked as well.
func TestBodiesThatNobodyReads(t *testing.T) {
	for _, mode := range everyMode() {
		a := start(t, threeTenants+smallBudget, mode)
		tidied, noPath := 404, 404
		if mode == "-framework=nethttp" || mode == "-bare" && *framework == "nethttp" {
			tidied, noPath = 307, 400
		}
		var conns []*rawConn
		for line, status := range map[string]int{
			"GET /healthz":            200,
			"POST /healthz":           405,
			"GET /headgate/status":    200,
			"POST /headgate/status":   405,
			"GET /headgate/inflight":  200,
			"PUT /echo":               405,
			"PUT /v1/messages":        405,
			"POST /v1/messages":       401,
			"POST /v1%2fmessages":     404,
			"POST //v1/messages":      tidied,
			"POST /v1/models":         404,
			"BREW /nowhere":           404,
			"OPTIONS *":               noPath,
			"POST /echo?hold=forever": 400,
		} {
			for _, framing := range []string{"Content-Length: 200000", "Content-Length: 999000", "Transfer-Encoding: chunked"} {
				c := a.dial()
				c.say(line + " HTTP/1.1\r\nHost: localhost\r\n" + framing + "\r\n\r\n1\r\n") // and no more
				if a.fiber && framing != chunked[0] {
					c.say(strings.Repeat("x", fiberPrefetch))
				}
				resp, _ := c.answer()
				assert.Equal(t, status, resp.StatusCode, "%s %s %s", mode, line, framing)
				assert.True(t, resp.Close, "%s %s %s", mode, line, framing)
				conns = append(conns, c)
			}
		}
		for _, c := range conns { // all at once: some linger for a second
			c.closed()
		}
		if mode != "-bare" {
			a.untilZero()
		}
	}
}

// deadlines is a writer that only has a read deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	mu  sync.Mutex
	at  time.Time
	set chan struct{} // closed by the first one
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() {
		close(d.set)
	}
	d.at = t
	return nil
}

// late is a body whose Read is about to begin when the handler is done, and then lets
// nothing come for an hour unless a deadline ends it.
type late struct {
	d     *deadlines
	began chan struct{}
}

func (b *late) Read([]byte) (int, error) {
	close(b.began)
	<-b.d.set
	_ = b.d.SetReadDeadline(time.Now().Add(time.Hour)) // as the byte gate does for each Read
	for {
		time.Sleep(time.Millisecond) // in a bubble
		b.d.mu.Lock()
		at := b.d.at
		b.d.mu.Unlock()
		if !time.Now().Before(at) {
			return 0, io.ErrNoProgress
		}
	}
}
func (b *late) Close() error { return nil }

// A Read that moves the deadline while the handler ends does not keep it from ending.
func TestFinishBoundsAReadThatJustBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder(), set: make(chan struct{})}
		body := &late{d, make(chan struct{})}
		u, r := newUpload(d, httptest.NewRequest(http.MethodPost, "/v1/messages", body))
		done := make(chan error, 1)
		go func() {
			_, err := r.Body.Read(make([]byte, 1))
			done <- err
		}()
		<-body.began
		begin := time.Now()
		u.finish()
		require.ErrorIs(t, <-done, io.ErrNoProgress)
		assert.Less(t, time.Since(begin), 2*linger, "in virtual time")
		_, err := r.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	})
}

// closedBody is a body that is closed behind its last byte, as net/http does when an
// answer begins.
type closedBody struct{ over bool }

func (b *closedBody) Read(p []byte) (int, error) {
	if b.over {
		return 0, http.ErrBodyReadAfterClose
	}
	b.over = true
	return copy(p, "x"), io.EOF
}
func (b *closedBody) Close() error { return nil }

// The transport reads once more behind the last byte of a body, while its answer is
// passed on or after it. That is no error, which would cut the answer.
func TestReadBehindTheEnd(t *testing.T) {
	u, r := newUpload(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/messages", &closedBody{}))
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.Equal(t, "x", string(body))
	for range 2 {
		_, err = r.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		u.leave()
	}
	require.Nil(t, u.err.Load())
}

// Trailers of a call are dropped, with their announcement: what may not come in a header
// may not come in a trailer.
func TestTrailersOfCallsAreDropped(t *testing.T) {
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strconv.Itoa(len(r.Trailer)))
	}))
	a := start(t, "", "-upstream", back.URL)
	for _, api := range apis {
		c := a.dial()
		c.post(api.path, "Transfer-Encoding: chunked", "Trailer: X-Sum, Authorization, Headgate-Class")
		c.say("2\r\n{}\r\n0\r\nX-Sum: 1\r\nAuthorization: Bearer x\r\nHeadgate-Class: interactive\r\n\r\n")
		resp, answer := c.answer()
		if a.fiberCannot("drop trailers that may be none: it refuses the body") {
			assert.Equal(t, 400, resp.StatusCode)
			continue
		}
		require.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, "0", answer)
	}
	if a.fiber {
		return
	}
	for _, seen := range back.done(len(apis)) {
		assert.NotContains(t, seen.header, "Trailer")
		assert.EqualValues(t, 2, seen.read)
	}
	a.untilZero()
}

// Trailers of an answer need chunks, which HTTP/2 does not.
func TestTrailersOfAnswersNeedChunks(t *testing.T) {
	for trailers, want := range map[string]string{"": "2", "X-Sum": ""} {
		resp := &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Length": {"2"}}, Trailer: http.Header{},
			Request: httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader("{}")),
		}
		if trailers != "" {
			resp.Trailer[trailers] = nil
		}
		require.NoError(t, passable(resp))
		assert.Equal(t, want, resp.Header.Get("Content-Length"))
	}
}
