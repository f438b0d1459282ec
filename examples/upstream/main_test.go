package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asCommand makes the test binary be the command, so that a test can send it a signal.
const asCommand = "UPSTREAM_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-capacity 0":                "capacity 0: want 1 or more",
		"-capacity many":             `invalid value "many" for flag -capacity`,
		"-service -1s":               "service -1s: want 0 to 1h0m0s",
		"-service 2":                 `invalid value "2" for flag -service`,
		"-jitter 1.1":                "jitter 1.1: want 0 to 1",
		"-jitter NaN":                "jitter NaN: want 0 to 1",
		"-tokens 0":                  "tokens 0: want 1 to 100000",
		"-retry-after -2s":           "retry-after -2s: want 0 (off) to 24h0m0s",
		"-retry-after 25h":           "retry-after 25h0m0s: want 0 (off) to 24h0m0s",
		"-addr=":                     `addr "": want host:port`,
		"-addr 127.0.0.1":            `addr "127.0.0.1": want host:port`,
		"-addr 127.0.0.1:99999":      `addr "127.0.0.1:99999": want host:port, with a port of 0 to 65535`,
		"-collapse -retry-after 2s":  "collapse and retry-after contradict each other",
		"-collapse true":             `unexpected argument "true"`,
		"-speed 2":                   "flag provided but not defined: -speed",
		"-addr 127.0.0.1:0 -seed -1": `invalid value "-1" for flag -seed`,
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(args), &stdout, &stderr); status != 2 {
			t.Errorf("%s: status %d", args, status)
		}
		if line := stderr.String(); !strings.HasPrefix(line, "upstream: "+want) || strings.Count(line, "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%s: stderr %q, want one line with %q; stdout %q", args, line, want, &stdout)
		}
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"-h"}, &stdout, &stderr); status != 0 {
		t.Errorf("status %d", status)
	}
	for _, name := range []string{"-addr", "-capacity", "-service", "-jitter", "-seed", "-collapse", "-retry-after", "-tokens"} {
		if !strings.Contains(stderr.String(), name) {
			t.Errorf("the help does not tell of %s", name)
		}
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first, line := io.Pipe()
	stopped := make(chan int, 1)
	go func() { stopped <- run(ctx, nil, line, io.Discard) }()
	addr := strings.TrimPrefix(listening(t, first), "http://")

	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"-addr", addr}, &stdout, &stderr); status != 1 || stdout.Len() > 0 {
		t.Errorf("status %d, stdout %q", status, &stdout)
	}
	if !strings.Contains(stderr.String(), addr) {
		t.Errorf("stderr %q does not name the address", &stderr)
	}
	cancel()
	if status := <-stopped; status != 0 {
		t.Errorf("the first ended with status %d", status)
	}
}

// listening reads the line that the command prints, and returns the URL in it.
func listening(t *testing.T, stdout io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no line on stdout: %v", err)
	}
	m := regexp.MustCompile(`^listening on (http://127\.0\.0\.1:[0-9]+)\n$`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("printed %q", line)
	}
	return m[1]
}

// The whole command: the line, a call, the counters, and a signal in the middle of calls.
func TestTheCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send SIGTERM to a process")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-addr", "127.0.0.1:0", "-capacity", "1", "-service", "1ms")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url := listening(t, stdout)
	post(t, url, `{"model":"m"}`).Body.Close()
	resp, err := http.Get(url + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		MaxConcurrent int `json:"max_concurrent"`
		Started       int
		Completed     int
		Abandoned     *int
		WorkMS        *int `json:"work_ms"`
	}
	err = json.NewDecoder(resp.Body).Decode(&stats)
	resp.Body.Close()
	if err != nil || stats.MaxConcurrent != 1 || stats.Started != 1 || stats.Completed != 1 || stats.Abandoned == nil || stats.WorkMS == nil {
		t.Errorf("%+v, %v", stats, err)
	}
	stop(t, cmd)
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", &stderr)
	}
}

func TestASignalCutsCalls(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send SIGTERM to a process")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-capacity", "1", "-service", "1h")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url := listening(t, stdout)
	resp := post(t, url, `{"model":"m","stream":true}`) // served: its head has come
	defer resp.Body.Close()
	stop(t, cmd)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the stream that was cut looks complete")
	}
}

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	return resp
}

// stop sends SIGTERM and waits for status 0; the time is only a guard against hanging.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
