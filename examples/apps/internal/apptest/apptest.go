// Package apptest checks that the small programs beside it behave alike, each run as a
// process.
package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
)

// hang is how long something may take that must happen.
const hang = 30 * time.Second

// Main lets a test binary be the program whose main is run, for Test.
func Main(m *testing.M, run func()) {
	if os.Getenv("APP_IS_A_PROCESS") == "1" {
		run()
		return
	}
	os.Exit(m.Run())
}

// Test runs the program with room for two calls to the back end, of which one is kept
// for interactive ones.
func Test(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs an interrupt that can be sent to a process; windows has none")
	}
	a := start(t)

	status, _, text := a.post("/chat", "", "{}")
	assert.Equal(t, http.StatusUnauthorized, status, text)
	status, reason, text := a.post("/chat", "", strings.Repeat("x", 2<<20))
	assert.Equal(t, http.StatusRequestEntityTooLarge, status, "bytes come before authentication: %s", text)
	assert.Equal(t, string(gate.PayloadTooLarge), reason)
	for _, path := range []string{"/chat", "/batch"} {
		status, reason, text = a.post(path, key, "a question")
		assert.Equal(t, http.StatusOK, status, text)
		assert.Empty(t, reason)
		assert.JSONEq(t, `{"answer to": "a question"}`, text)
	}

	assert.Contains(t, a.get("/headgate/", ""), "<!doctype html>")
	for _, proxied := range []string{"1.0", "1.1\r\nConnection: close\r\nX-Real-Ip: 192.0.2.1"} { // old nginx as it comes, and one that tells
		assert.Regexp(t, "^HTTP/1.[01] 403 ", a.raw("GET /headgate/status HTTP/"+proxied+"\r\nHost: "+a.addr+"\r\n\r\n"))
	}
	text = a.get("/metrics", "")
	assert.Contains(t, text, `headgate_admission_sheds_total{reason="payload_too_large"} 1`)
	assert.Contains(t, text, `headgate_outbound_inflight{lane=`)

	text = a.get("/status", key)
	var gates headgate.Snapshot
	require.NoError(t, json.Unmarshal([]byte(text), &gates), text)
	assert.EqualValues(t, 1, gates.Lanes.Inflight, "the status itself, in its tenant's lane")
	assert.EqualValues(t, 3, gates.Lanes.Admitted)
	assert.EqualValues(t, 1, gates.Admission.ShedReasons[gate.PayloadTooLarge])
	assert.NotContains(t, text, "tenant-7")

	held := make(chan string, 1)
	go func() {
		status, _, text := a.post("/batch", key, "hold")
		held <- http.StatusText(status) + " " + text
	}()
	<-a.holding
	status, reason, text = a.post("/batch", key, "later")
	assert.Equal(t, http.StatusServiceUnavailable, status, "the other slot is not for bulk work: %s", text)
	assert.Equal(t, string(gate.QueueTimeout), reason)
	status, _, text = a.post("/chat", key, "now")
	assert.Equal(t, http.StatusOK, status, text)

	require.NoError(t, a.cmd.Process.Signal(os.Interrupt))
	require.Eventually(t, func() bool { return !a.listens() }, hang, 5*time.Millisecond, "it accepts calls though it ends")
	a.release()
	assert.Equal(t, `OK {"answer to": "hold"}`, <-held, "what runs may finish")
	select {
	case err := <-a.ended:
		require.NoError(t, err, a.output.String())
	case <-time.After(hang):
		require.Fail(t, "it does not end")
	}
}

const key = "Bearer key-of-7"

// program is the running program and its back end.
type program struct {
	t       *testing.T
	addr    string
	cmd     *exec.Cmd
	ended   chan error
	output  *bytes.Buffer // to be read once it has ended
	holding chan struct{} // the back end holds a call
	release func()        // and answers it now
}

// start runs the program until the test ends.
func start(t *testing.T) *program {
	t.Helper()
	next := make(chan struct{})
	a := &program{
		t: t, addr: freeAddr(t), ended: make(chan error, 1), output: new(bytes.Buffer),
		holding: make(chan struct{}), release: sync.OnceFunc(func() { close(next) }),
	}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a call that breaks off has no answer
		if string(body) == "hold" {
			a.holding <- struct{}{}
			<-next
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"answer to": "`+string(body)+`"}`)
	}))
	t.Cleanup(back.Close)
	t.Cleanup(a.release)
	self, err := os.Executable()
	require.NoError(t, err)
	a.cmd = exec.CommandContext(context.Background(), self) // it ends by a signal, or is killed below
	a.cmd.Env = append(os.Environ(), "APP_IS_A_PROCESS=1", "ADDR="+a.addr, "UPSTREAM="+back.URL, "HEADGATE_HARD_MAX_BODY_BYTES=1MiB",
		"HEADGATE_MAX_INFLIGHT=2", "HEADGATE_INFLIGHT_QUEUE_TIMEOUT=100ms")
	a.cmd.Stdout, a.cmd.Stderr = a.output, a.output
	require.NoError(t, a.cmd.Start())
	over := make(chan struct{})
	go func() { defer close(over); a.ended <- a.cmd.Wait() }()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // unless it has ended
		<-over
	})
	require.Eventually(t, a.listens, hang, 5*time.Millisecond, "it does not listen")
	return a
}

// listens reports whether the program takes connections.
func (a *program) listens() bool {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", a.addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// freeAddr returns an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// post returns the status of an answer, why the call was refused, and the body. Status 0
// is no answer, and the text says why.
func (a *program) post(path, authorization, body string) (status int, reason, text string) {
	return a.send(http.MethodPost, path, authorization, body)
}

// get is the body that GET answers.
func (a *program) get(path, authorization string) string {
	status, _, text := a.send(http.MethodGet, path, authorization, "")
	assert.Equal(a.t, http.StatusOK, status, text)
	return text
}

// raw is what comes back for a request, byte for byte, until the connection ends.
func (a *program) raw(request string) string {
	conn, err := new(net.Dialer).DialContext(a.t.Context(), "tcp", a.addr)
	require.NoError(a.t, err)
	defer conn.Close()
	require.NoError(a.t, conn.SetDeadline(time.Now().Add(hang)))
	_, err = io.WriteString(conn, request)
	require.NoError(a.t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(a.t, err)
	return string(answer)
}

func (a *program) send(method, path, authorization, body string) (status int, reason, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+a.addr+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err.Error()
	}
	req.Header.Set("Authorization", authorization)
	req.Header.Set("Expect", "100-continue") // a refusal must not be lost behind a body that is not read
	transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: hang}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err.Error()
	}
	return resp.StatusCode, resp.Header.Get(gate.MarkerHeader), string(answer)
}
