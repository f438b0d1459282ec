package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// gateway is the app under test.
const gateway = "github.com/headgate-go/headgate/examples/gateway"

// How long the app may take to start, and to drain.
const (
	startTime = 20 * time.Second
	stopTime  = 15 * time.Second
)

// build builds a command of this module into dir and returns the program's path.
func build(ctx context.Context, dir, command string) (string, error) {
	bin := executable(dir, path.Base(command))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, command)
	// Without cgo, threads have no stacks that a memory limit would count.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the %s, run storm in the examples module: %w\n%s", path.Base(command), err, bytes.TrimSpace(out))
	}
	return bin, nil
}

// executable is the path of a program in dir.
func executable(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// app is a running process of the app.
type app struct {
	url     string
	limit   *memoryLimit
	cmd     *exec.Cmd
	log     *tail
	stopped bool // told to end
	killed  bool // by us, as it did not

	exited chan struct{} // closed when it has ended; ended is set then
	ended  time.Time
}

// start starts argv under a limit and waits until it says where it listens. The error
// has the end of its log. stop must be called.
func start(ctx context.Context, argv, env []string, limit *memoryLimit, log io.Writer) (*app, error) {
	argv = limit.wrap(argv...)
	a := &app{
		// It is stopped in order, not killed, when ctx ends.
		cmd: exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...), limit: limit,
		log: &tail{to: log}, exited: make(chan struct{}),
	}
	a.cmd.Env = env
	a.cmd.Stderr = a.log
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the app: %w", err)
	}
	listening := make(chan string, 1)
	go a.wait(stdout, listening)

	timeout := time.NewTimer(startTime)
	defer timeout.Stop()
	var problem string
	select {
	case a.url = <-listening:
		return a, nil
	case <-a.exited:
		problem = "ended at once: " + a.cmd.ProcessState.String()
	case <-timeout.C:
		problem = fmt.Sprintf("did not say where it listens within %v", startTime)
	case <-ctx.Done():
		problem = ctx.Err().Error()
	}
	a.kill()
	return nil, fmt.Errorf("the app %s\n%s", problem, a.log)
}

// wait reads the app's standard output to the end and then its exit status.
func (a *app) wait(stdout io.Reader, listening chan<- string) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			select {
			case listening <- url:
			default: // said before
			}
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // a line too long for the scanner must not block the app
	_ = a.cmd.Wait()                   // the status is in ProcessState
	a.ended = time.Now()
	close(a.exited)
}

// stop tells the app to drain, waits until it has ended, and kills it if it does not.
// An app that has ended already is left as it is.
func (a *app) stop() {
	select {
	case <-a.exited:
		return
	default:
	}
	a.stopped = true
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil { // Windows has no such signal
		a.killed = true
		a.kill()
		return
	}
	timeout := time.NewTimer(stopTime)
	defer timeout.Stop()
	select {
	case <-a.exited:
	case <-timeout.C:
		a.killed = true
		a.kill()
	}
}

func (a *app) kill() {
	_ = a.cmd.Process.Kill() // fails when it has ended
	<-a.exited
}

// end says how the app ended, and when if that was by itself, else the zero time. It
// waits for the end.
func (a *app) end() (string, time.Time) {
	<-a.exited
	state := a.cmd.ProcessState
	status := fmt.Sprint("exit ", state.ExitCode())
	if !state.Exited() {
		status = state.String() // the signal
	}
	switch {
	case a.limit.kills() > 0:
		return "killed: out of memory", a.ended
	case a.log.outOfMemory():
		return "crashed: out of memory", a.ended
	case !a.stopped, !state.Exited() && !a.killed:
		return status, a.ended // it may have been dying when it was told to
	}
	return status, time.Time{}
}

// peakMemory is the most memory that the app has had, in bytes, once it has ended, 0
// when unknown. seen is the most that was sampled.
func (a *app) peakMemory(seen int64) int64 {
	<-a.exited
	most := maxRSS(a.cmd.ProcessState)
	// On Linux a process inherits the mark of the one that started it: up to our
	// own peak it says nothing of the app.
	if self, ok := readMemory(os.Getpid()); ok && most <= self.peak {
		return seen
	}
	return max(most, seen)
}

// tail is a writer that keeps the end of what is written, and whether it spoke of
// memory that ran out: a Go program says so first and then prints all its stacks. It
// passes everything on to to, if that is not nil.
type tail struct {
	to io.Writer

	mu   sync.Mutex
	kept []byte
	oom  bool
}

const tailBytes = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	old := len(t.kept)
	t.kept = append(t.kept, b...)
	for _, text := range []string{"out of memory", "cannot allocate memory"} {
		// It may have come in two pieces.
		t.oom = t.oom || bytes.Contains(t.kept[max(old-len(text), 0):], []byte(text))
	}
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.mu.Unlock()
	if t.to != nil {
		return t.to.Write(b)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

func (t *tail) outOfMemory() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.oom
}
