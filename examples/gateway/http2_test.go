package main

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startBehindTLS runs a gateway in front of a back end that speaks HTTP/2.
func startBehindTLS(t *testing.T, yaml string, h http.HandlerFunc) *process {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a system where SSL_CERT_FILE names the certificates that a process trusts")
	}
	back := httptest.NewUnstartedServer(h)
	back.EnableHTTP2 = true
	back.StartTLS()
	t.Cleanup(back.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: back.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, text, 0o600))
	t.Setenv("SSL_CERT_FILE", file)
	return startProcess(t, yaml, "-upstream", back.URL)
}

// Calls pass to a back end over HTTP/2 and back, with events and trailers.
func TestHTTP2BackEnd(t *testing.T) {
	p := startBehindTLS(t, smallBudget, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		w.Header().Set("Trailer", "X-Sum")
		if strings.Contains(string(text), "stream") {
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
		} else {
			w.Header().Set("Content-Length", "9")
		}
		_, _ = io.WriteString(w, "data: 2\n\n")
		w.Header().Set("X-Sum", "7")
	})
	for _, api := range apis {
		for body, want := range map[string]string{"{}": "data: 2\n\n", `{"stream": true}`: "data: 1\n\ndata: 2\n\n"} {
			resp, err := p.client.Do(p.request(api.path, body))
			require.NoError(t, err)
			_, text, err := read(resp)
			require.NoError(t, err)
			assert.Equal(t, want, text)
			assert.Equal(t, "7", resp.Trailer.Get("X-Sum"))
		}
	}
	p.untilZero()
}

// A back end that answers or gives up before it has the body makes no client's slowness
// hold a slot or bytes: HTTP/2 waits for the Read of a body that nobody wants any more.
func TestHTTP2AnswerBeforeTheBody(t *testing.T) {
	const yaml = "inflight: {max_inflight: 7}\nadmission: {max_inflight_bytes: 8MiB, body_idle: 1h, body_timeout: 1h, min_body_rate: 0, min_body_rate_waiting: 0}"
	p := startBehindTLS(t, yaml, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "breaks" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "too large for me")
	})
	var conns []*rawConn
	cases := []struct {
		query          string
		declared, sent int
		status         int
	}{
		{"", mib, 1, 413}, {"", 300_000, 1, 413}, {"", 100_000, 1, 413}, {"", 100, 0, 413}, {"", mib, 100_000, 413},
		{"?breaks", mib, 1, 502}, {"?breaks", 100, 0, 502},
	}
	for _, c := range cases {
		conn := p.dial()
		if c.declared < fiberPrefetch && p.fiberCannot(noSmallBody) {
			c.declared = 2 * fiberPrefetch
		}
		conn.post("/v1/responses"+c.query, contentLength(c.declared))
		conn.say(strings.Repeat("x", c.sent)) // and no more
		conns = append(conns, conn)
	}
	for i, c := range cases {
		resp, text := conns[i].answer()
		assert.Equal(t, c.status, resp.StatusCode, text)
		assert.True(t, resp.Close)
	}
	for _, conn := range conns {
		conn.closed()
	}
	p.untilZero()
	p.untilLane("other", "no slot is held", func(l inflight.LaneSnapshot) bool { return l.Inflight == 0 && l.Queued == 0 })
}
