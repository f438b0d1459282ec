package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// call is what a back end has seen of a call, and what it has answered.
type call struct {
	method, uri, host string
	header            http.Header
	length            int64
	read              int64  // bytes of its body
	sha256            string // of them
	status            int
	answered          http.Header
	answer            string
}

// spy is a back end that writes down its calls.
type spy struct {
	*httptest.Server
	t     *testing.T
	model *upstream.Server // nil where the test answers itself

	mu    sync.Mutex
	calls []call
}

// models runs the mock back end, with a capacity that no test reaches.
func models(t *testing.T, service time.Duration) *spy {
	t.Helper()
	c := upstream.DefaultConfig()
	c.Capacity, c.Service, c.Jitter = 1000, service, 0
	model, err := upstream.New(c)
	require.NoError(t, err)
	s := listen(t, model)
	s.model = model
	t.Cleanup(model.Close)
	return s
}

// listen runs a back end that answers as h does.
func listen(t *testing.T, h http.Handler) *spy {
	t.Helper()
	s := &spy{t: t}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		out := &recorder{ResponseWriter: w, c: call{
			method: r.Method, uri: r.RequestURI, host: r.Host, header: r.Header.Clone(), length: r.ContentLength,
		}}
		defer func() {
			out.c.sha256, out.c.answer = hex.EncodeToString(sum.Sum(nil)), out.text.String()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.calls = append(s.calls, out.c)
		}()
		r.Body = &counted{r.Body, io.TeeReader(r.Body, sum), &out.c.read}
		h.ServeHTTP(out, r)
	}))
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

// done waits until n calls are over, and returns them.
func (s *spy) done(n int) []call {
	s.t.Helper()
	var calls []call
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		calls = append([]call(nil), s.calls...)
		return len(calls) >= n
	}, hang, 5*time.Millisecond, "the back end has not finished %d calls", n)
	require.Len(s.t, calls, n)
	return calls
}

// until waits until the mock's counters are as is says.
func (s *spy) until(what string, is func(upstream.Stats) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return is(s.model.Stats()) }, hang, 5*time.Millisecond, "the back end never has "+what)
}

// counted is a body that counts what is read of it.
type counted struct {
	io.Closer
	from io.Reader
	n    *int64
}

func (b *counted) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	*b.n += int64(n)
	return n, err
}

// recorder keeps what is answered.
type recorder struct {
	http.ResponseWriter
	c    call
	text bytes.Buffer
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	r.c.status, r.c.answered = status, r.Header().Clone()
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.c.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	r.text.Write(p)
	return r.ResponseWriter.Write(p)
}

// question is a call's body of about size bytes, 0 = small.
func question(stream bool, size int) string {
	q := map[string]any{"model": "m", "stream": stream, "messages": []any{}, "input": "", "user": strings.Repeat("x", max(size-80, 0))}
	text, err := json.Marshal(q)
	if err != nil {
		panic(err) // it is strings only
	}
	return string(text) + strings.Repeat(" ", max(size-len(text), 0))
}

// request returns a POST that is not sent yet. headers are names and values in turn.
func (a *app) request(path, body string, headers ...string) *http.Request {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	return req
}

// ask sends a POST and reads the answer.
func (a *app) ask(path, body string, headers ...string) (reply, string) {
	a.t.Helper()
	resp, err := a.client.Do(a.request(path, body, headers...))
	require.NoError(a.t, err)
	head, text, err := read(resp)
	require.NoError(a.t, err)
	return head, text
}

// shaped is an error in an API's own shape.
type shaped struct {
	Type  string // Anthropic: "error"
	Error struct{ Type, Message, Code string }
}

// requireShape checks that an answer is an error that the clients of a path can read.
func requireShape(t *testing.T, path string, resp reply, answer string, status int) shaped {
	t.Helper()
	require.Equal(t, status, resp.StatusCode, answer)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var s shaped
	require.NoError(t, json.Unmarshal([]byte(answer), &s), answer)
	var fields struct{ Error map[string]any }
	require.NoError(t, json.Unmarshal([]byte(answer), &fields))
	if formatOf(path) == gate.Anthropic {
		assert.Equal(t, "error", s.Type)
		assert.NotContains(t, fields.Error, "param")
	} else {
		assert.Empty(t, s.Type)
		assert.Contains(t, fields.Error, "param")
	}
	assert.NotEmpty(t, s.Error.Type)
	assert.NotEmpty(t, s.Error.Message)
	return s
}
