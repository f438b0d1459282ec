package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is a gateway in a process of its own.
type process struct {
	*app
	cmd *exec.Cmd
}

func startProcess(t *testing.T, yaml string, args ...string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a SIGTERM that can be sent to a process; windows has none")
	}
	p := &process{app: newApp(t)}
	if yaml != "" {
		p.write(yaml)
		args = append(args, "-config", p.file)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	p.cmd = exec.Command(self, append([]string{"-addr", "127.0.0.1:0", "-framework", *framework}, args...)...)
	p.cmd.Env = append(os.Environ(), "GATEWAY_IS_A_PROCESS=1")
	p.cmd.Stdout, p.cmd.Stderr = in, p.log
	require.NoError(t, p.cmd.Start())
	in.Close()
	go func() {
		err := p.cmd.Wait()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Errorf("wait for the process: %v", err)
		}
		p.exited <- p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended, unless the test failed
		select {
		case <-p.exited:
		case <-time.After(hang):
			t.Error("the process does not end")
		}
		out.Close()
	})
	p.listening(out)
	return p
}

// signal sends what a supervisor sends.
func (p *process) signal() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// draining opens a request that uploads and one that waits, and says that the
// gateway shall end.
func draining(t *testing.T, a *app, stop func()) (upload *rawConn) {
	t.Helper()
	upload = a.dial()
	upload.post("/echo", "Content-Length: "+strconv.Itoa(8*mib))
	a.until("one uploads", func(s status) bool { return s["inflight_bytes"] == 8*mib })
	waiter := a.dial()
	waiter.post("/echo", "Content-Length: 1000000")
	a.until("one waits", func(s status) bool { return s["waiting"] == 1 })
	stop()

	resp, answer := waiter.answer()
	requireRefused(t, resp, answer, 503, "shutting_down")
	waiter.closed()
	return upload
}

// On SIGTERM who waits is refused, who is being served is served, and the process
// exits with 0.
func TestDrain(t *testing.T) {
	p := startProcess(t, smallBudget)
	upload := draining(t, p.app, p.signal)
	body := []byte(strings.Repeat("x", 8*mib))
	upload.say(string(body))
	resp, answer := upload.answer()
	requireEcho(t, body, resp, answer)
	upload.closed()
	assert.Zero(t, p.exit(), p.log.String())
	p.logs("msg=drained")
}

// What is not done when drain_timeout is over is cut, and the exit status is 0.
func TestDrainTimeout(t *testing.T) {
	p := startProcess(t, smallBudget+"\ndrain_timeout: 200ms")
	upload := draining(t, p.app, p.signal)
	held := make(chan struct{})
	go func() { defer close(held); _, _ = io.Copy(io.Discard, upload.r) }()
	assert.Zero(t, p.exit(), p.log.String())
	<-held
	p.logs("what still runs is cut")
	assert.NotContains(t, p.log.String(), "msg=drained")
}

// A second signal ends the process at once.
func TestSecondSignal(t *testing.T) {
	p := startProcess(t, smallBudget+"\ndrain_timeout: 1h")
	draining(t, p.app, p.signal)
	p.signal()
	assert.Equal(t, 1, p.exit(), p.log.String())
}

// A process without work ends at once, on either signal, with headgate or without.
func TestDrainIdle(t *testing.T) {
	for _, c := range []struct {
		arg    string
		signal os.Signal
	}{
		{"-framework=nethttp", syscall.SIGTERM}, {"-framework=gin", os.Interrupt}, {"-framework=echo", syscall.SIGTERM}, {"-bare", os.Interrupt},
	} {
		p := startProcess(t, "drain_timeout: 1h", c.arg)
		resp, _ := p.do("GET", "/healthz", nil) // its connection stays open, and idle
		require.Equal(t, 200, resp.StatusCode)
		require.NoError(t, p.cmd.Process.Signal(c.signal))
		assert.Zero(t, p.exit(), p.log.String())
	}
}

// The same without a process: run returns, every counter is at zero, and nothing of
// it keeps running.
func TestDrainInProcess(t *testing.T) {
	before := runtime.NumGoroutine()
	a := start(t, smallBudget+"\ndrain_timeout: 100ms")
	upload := draining(t, a, a.cancel)
	assert.Zero(t, a.exit(), a.log.String())
	upload.closed()
	a.client.CloseIdleConnections()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, hang, 10*time.Millisecond)
}

// A stream that runs when the signal comes is passed on to its end, from whichever back
// end.
func TestDrainStream(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-next
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	p := startProcess(t, smallBudget, "-upstream", back.URL)
	resp, err := p.client.Do(p.request("/v1/messages", question(true, 0)))
	require.NoError(t, err)
	p.signal()
	p.logs("msg=draining")
	close(next)
	_, text, err := read(resp)
	require.NoError(t, err)
	assert.Equal(t, "data: 1\n\ndata: 2\n\n", text)
	assert.Zero(t, p.exit(), p.log.String())
	p.logs("msg=drained")

	p = startProcess(t, "")
	resp, err = p.client.Do(p.request("/v1/messages", question(true, 0)))
	require.NoError(t, err)
	p.signal()
	_, text, err = read(resp)
	require.NoError(t, err)
	assert.Contains(t, text, "message_stop")
	assert.Zero(t, p.exit(), p.log.String())
}

// A stream that is not done when drain_timeout is over is cut, and the back end told.
func TestDrainTimeoutStream(t *testing.T) {
	back := models(t, time.Hour)
	p := startProcess(t, smallBudget+"\ndrain_timeout: 200ms", "-upstream", back.URL)
	resp, err := p.client.Do(p.request("/v1/messages", question(true, 0)))
	require.NoError(t, err)
	p.signal()
	_, _, err = read(resp)
	require.Error(t, err, "it must not look complete")
	assert.Zero(t, p.exit(), p.log.String())
	back.until("given up", func(s upstream.Stats) bool { return s.Abandoned == 1 && s.Concurrent == 0 })
}

// Connections to the back end do not outlive the gateway.
func TestDrainClosesConnections(t *testing.T) {
	back := models(t, 0)
	before := runtime.NumGoroutine()
	a := start(t, "", "-upstream", back.URL)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			resp, err := a.client.Do(a.request("/v1/messages", question(true, 0)))
			if assert.NoError(t, err) {
				_, _, err = read(resp)
				assert.NoError(t, err)
			}
		})
	}
	calls.Wait()
	a.client.CloseIdleConnections()
	a.cancel()
	assert.Zero(t, a.exit())
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, hang, 10*time.Millisecond)
}
