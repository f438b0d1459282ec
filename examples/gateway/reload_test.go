package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watched is a watcher, what it has applied and what it has told.
type watched struct {
	*watcher
	t       *testing.T
	applied []config
	refuse  error
	told    *safeBuffer
}

func watch(t *testing.T, yaml string) *watched {
	t.Helper()
	w := &watched{t: t, told: new(safeBuffer)}
	w.watcher = &watcher{
		path: filepath.Join(t.TempDir(), "c.yaml"), base: base(t),
		log: slog.New(slog.NewTextHandler(w.told, nil)),
		apply: func(c config) error {
			if w.refuse == nil {
				w.applied = append(w.applied, c)
			}
			return w.refuse
		},
	}
	w.write(yaml)
	_, err := w.load()
	require.NoError(t, err)
	return w
}

func (w *watched) write(yaml string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.path, []byte(yaml), 0o600))
}

// polls polls n times and returns how many lines were told and configs applied.
func (w *watched) polls(n int) (lines, applied int) {
	lines, applied = strings.Count(w.told.String(), "\n"), len(w.applied)
	for range n {
		w.poll()
	}
	return strings.Count(w.told.String(), "\n") - lines, len(w.applied) - applied
}

func (w *watched) requirePolls(lines, applied int) {
	w.t.Helper()
	gotLines, gotApplied := w.polls(5)
	require.Equal(w.t, lines, gotLines, w.told.String())
	require.Equal(w.t, applied, gotApplied)
}

func TestWatcher(t *testing.T) {
	w := watch(t, "drain_timeout: 1s")
	w.requirePolls(0, 0)

	w.write("drain_timeout: 2s")
	w.requirePolls(1, 1)
	assert.Equal(t, 2*time.Second, w.applied[0].DrainTimeout)
	assert.Contains(t, w.told.String(), "config applied")

	now := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(w.path, now, now)) // the same text under a new time
	w.requirePolls(0, 0)

	for _, bad := range []string{"", "drain_timeout: 0s", "drain_timeout: 3s\nnonsense: 1", "---\n---\n"} {
		w.write(bad)
		w.requirePolls(1, 0) // told once, however often it is seen
	}
	w.write("drain_timeout: 2s")
	w.requirePolls(1, 0) // what is in force needs no applying
	assert.Contains(t, w.told.String(), "again what is in force")

	require.NoError(t, os.Remove(w.path))
	w.requirePolls(1, 0)
	require.NoError(t, os.Mkdir(w.path, 0o700))
	w.requirePolls(1, 0)
	assert.Contains(t, w.told.String(), "not a regular file")
	require.NoError(t, os.Remove(w.path))
	w.write("drain_timeout: 4s")
	w.requirePolls(1, 1)
	assert.Equal(t, 4*time.Second, w.applied[1].DrainTimeout)

	w.write("{}") // what the file no longer names is the default again
	w.requirePolls(1, 1)
	assert.Equal(t, base(t), w.applied[2])
}

// A file is not applied while it is written.
func TestWatcherWaitsUntilTheFileSettles(t *testing.T) {
	w := watch(t, "drain_timeout: 1s")
	for i := range 9 {
		w.write(strings.Repeat("#", i) + "\ndrain_timeout: 9s")
		lines, applied := w.polls(1)
		assert.Zero(t, lines+applied)
	}
	w.requirePolls(1, 1)
}

// What the gates refuse is told as any other error, and can be mended.
func TestWatcherApplyFails(t *testing.T) {
	w := watch(t, "drain_timeout: 1s")
	w.refuse = errors.New("the gates do not like it")
	w.write("drain_timeout: 2s")
	w.requirePolls(1, 0)
	assert.Contains(t, w.told.String(), "the gates do not like it")
	w.refuse = nil
	w.requirePolls(0, 0) // the text is the same: nothing to try again
	w.write("drain_timeout: 2s # again")
	w.requirePolls(1, 1)
}

// Whenever a file changes, it is applied within a second.
func TestWatcherWithinASecond(t *testing.T) {
	for offset := time.Duration(0); offset < time.Second; offset += 90 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := watch(t, "drain_timeout: 1s")
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { w.run(ctx); close(done) }()
			time.Sleep(offset)
			synctest.Wait()
			w.write("drain_timeout: 2s")
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			assert.Len(t, w.applied, 1)
			stop()
			<-done
		})
	}
}

// Files that are renamed over the old one, and links that point elsewhere, count as
// changed.
func TestWatcherFollowsLinks(t *testing.T) {
	w := watch(t, "drain_timeout: 1s")
	other := filepath.Join(t.TempDir(), "other.yaml")
	require.NoError(t, os.WriteFile(other, []byte("drain_timeout: 2s"), 0o600))
	if err := os.Symlink(other, w.path+".link"); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	require.NoError(t, os.Rename(w.path+".link", w.path))
	w.requirePolls(1, 1)
	require.NoError(t, os.WriteFile(other, []byte("drain_timeout: 3s"), 0o600))
	w.requirePolls(1, 1)
	require.NoError(t, os.Remove(other))
	w.requirePolls(1, 0)
}

// A change of the file reaches the gates of a running gateway, and who waits for
// room that the change makes is let in.
func TestReload(t *testing.T) {
	a := start(t, smallBudget)
	release := a.fill()
	waiter := make(chan reply, 1)
	go func() {
		resp, _, err := a.try(context.Background(), http.MethodPost, "/echo", strings.NewReader("waits"))
		assert.NoError(t, err)
		waiter <- resp
	}()
	a.until("one waits", func(s status) bool { return s["waiting"] == 1 })
	a.write(strings.Replace(smallBudget, "8MiB", "16MiB", 1))
	assert.Equal(t, 200, (<-waiter).StatusCode)
	assert.EqualValues(t, 16*mib, a.status()["max_inflight_bytes"])
	a.logs("config applied")
	release()
	a.untilZero()
}

// A file that cannot be applied changes nothing, none of what is right in it
// either, and the log says why.
func TestReloadRefused(t *testing.T) {
	a := start(t, "admission: {max_inflight_bytes: 8MiB}\nlog_level: info")
	for yaml, why := range map[string]string{
		"": "the file is empty",
		"admission: {max_inflight_bytes: 16MiB, nonsense: 1}":                   "unknown key",
		"admission: {max_inflight_bytes: 16MiB, queue_timeout: abc}":            "queue_timeout",
		"admission: {max_inflight_bytes: 16MiB, max_waiters: -7}":               "MaxWaiters is -7",
		"admission: {max_inflight_bytes: 16MiB}\nlog_level: debug\nother: true": "other",
		"admission: {max_inflight_bytes: 16MiB}\ndrain_timeout: 0s":             "drain_timeout is 0s",
	} {
		a.write(yaml)
		a.logs(why)
		assert.EqualValues(t, 8*mib, a.status()["max_inflight_bytes"], yaml)
	}
	require.NoError(t, os.Remove(a.file))
	a.logs("no such file")
	assert.EqualValues(t, 8*mib, a.status()["max_inflight_bytes"])
	assert.NotContains(t, a.log.String(), "level=DEBUG", "log_level of a refused file was applied")

	a.write("admission: {max_inflight_bytes: 32MiB}")
	a.until("the new budget", func(s status) bool { return s["max_inflight_bytes"] == 32*mib })
}

// The program's own keys change too.
func TestReloadOwnKeys(t *testing.T) {
	a := start(t, "log_level: error\ndrain_timeout: 1h")
	assert.Empty(t, a.log.String(), "level error hides that headgate is open")
	a.write("log_level: debug\ndrain_timeout: 77ms")
	a.logs("config applied")
	a.do(http.MethodPost, "/echo", strings.NewReader("x"))
	a.logs("msg=decision")
	a.cancel()
	assert.Zero(t, a.exit())
	a.logs("msg=draining drain_timeout=77ms")
}

// A config that cannot work ends the program before it listens.
func TestStartRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, fmt.Sprintf("%x.yaml", text))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{[]string{"-config", file("")}, "", "the file is empty"},
		{[]string{"-config", file("a: 1")}, "", `unknown key "a"`},
		{[]string{"-config", file("admission: {max_exempt: 0}")}, "", "MaxExempt is 0"},
		{[]string{"-config", file("admission: {max_exempt: 0}"), "-bare"}, "", "MaxExempt is 0"},
		{[]string{"-config", filepath.Join(dir, "none.yaml")}, "", "none.yaml"},
		{[]string{"-config", dir}, "", "not a regular file"},
		{[]string{"-framework", "rails"}, "", `-framework "rails": want one of echo, fiber, gin, nethttp`},
		{[]string{"-framework", ""}, "", `-framework "": want one of echo, fiber, gin, nethttp`},
		{[]string{"-upstream", "127.0.0.1:80"}, "", "-upstream is no URL"},
		{[]string{"-upstream", "localhost"}, "", `-upstream is "localhost": want one such as http`},
		{[]string{"-upstream", "http://"}, "", `-upstream is "http:": want one such as http`},
		{[]string{"-upstream", "http://:80"}, "", `-upstream is "http://:80": want one such as http`},
		{[]string{"-upstream", "ftp://localhost"}, "", `-upstream is "ftp://localhost": want one such as http`},
		{[]string{"-upstream", "http://user:secret@localhost"}, "", `-upstream is "http://user:xxxxx@localhost": it must hold no user or password`},
		{[]string{"-upstream", "http://localhost/?a=b"}, "", `it must have no query`},
		{[]string{"-upstream", "http://localhost/#a"}, "", `it must have no query and no fragment`},
		{[]string{"-upstream", "http://localhost/v1/"}, "", `leave /v1 out: the paths of the calls have it`},
		{[]string{"-config", file("tenants: [{name: a, key: secret, weight: 0}]")}, "", "tenants[0].weight is 0: want 1 to 1000"},
		{[]string{"serve"}, "", `unexpected argument "serve"`},
		{[]string{"-port", "80"}, "", "flag provided but not defined: -port"},
		{nil, "much", `HEADGATE_MAX_INFLIGHT_BYTES is "much": want a whole number of bytes`},
	} {
		var out, log safeBuffer
		getenv := func(name string) string {
			if name == "HEADGATE_MAX_INFLIGHT_BYTES" {
				return c.env
			}
			return ""
		}
		code := run(t.Context(), append([]string{"-addr", "127.0.0.1:0"}, c.args...), getenv, &out, &log)
		assert.Equal(t, 2, code, c.args)
		assert.Contains(t, log.String(), c.want)
		assert.NotContains(t, log.String(), "secret")
		assert.Empty(t, out.String())
	}

	var out, log safeBuffer
	key := func(name string) string { return map[string]string{upstreamKey: "se cret"}[name] }
	assert.Equal(t, 2, run(t.Context(), nil, key, &out, &log))
	assert.Contains(t, log.String(), "GATEWAY_UPSTREAM_KEY has a character that a header cannot carry")
	assert.NotContains(t, log.String(), "se cret")
}

func TestStartHelp(t *testing.T) {
	var out, log safeBuffer
	assert.Zero(t, run(t.Context(), []string{"-h"}, noenv, &out, &log))
	assert.Contains(t, log.String(), "-framework")
	assert.Empty(t, out.String())
}

// A port that is taken ends the program, and leaves no goroutine.
func TestStartPortTaken(t *testing.T) {
	a := start(t, "")
	a.do(http.MethodGet, healthPath, nil) // it runs
	before := runtime.NumGoroutine()
	for range 10 {
		var out, log safeBuffer
		assert.Equal(t, 1, run(t.Context(), []string{"-addr", a.addr}, noenv, &out, &log))
		assert.Contains(t, log.String(), "address already in use")
		assert.Empty(t, out.String())
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, hang, 10*time.Millisecond)
}

// The environment is heard without a file too.
func TestStartEnvironment(t *testing.T) {
	t.Setenv("HEADGATE_MAX_INFLIGHT_BYTES", "48MiB")
	a := startProcess(t, "")
	assert.EqualValues(t, 48*mib, a.status()["max_inflight_bytes"])
	a.signal()
	assert.Zero(t, a.exit())
}
