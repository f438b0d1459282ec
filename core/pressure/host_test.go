package pressure

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// host is all that a monitor asks about: files that stand for "/", a Go runtime and its
// collector. Each can change between two samples.
type host struct {
	mu       sync.Mutex
	files    files
	built    fs.FS            // of files; nil when they have changed
	broken   map[string]error // what Open answers
	opened   map[string]int
	stats    goStats
	collects int
	collect  func() // what a forced collection does, outside of mu
}

// newHost is a machine of 24 GiB with a v2 cgroup /app of 1 GiB and a quiet runtime.
func newHost() *host {
	const app = "sys/fs/cgroup/app/"
	return &host{
		files: machine.with(files{
			"proc/self/cgroup":      "0::/app\n",
			"proc/self/mountinfo":   "34 24 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			app + "memory.max":      "1073741824\n",
			app + "memory.high":     "max\n",
			app + "memory.current":  "104857600\n",
			app + "memory.stat":     "inactive_file 0\nactive_file 0\nslab_reclaimable 0\n",
			app + "memory.events":   "oom 0\noom_kill 0\n",
			app + "memory.pressure": "some avg10=0.00 total=0\nfull avg10=0.00 total=0\n",
		}),
		broken: map[string]error{},
		opened: map[string]int{},
		stats:  goStats{ok: true, memoryLimit: math.MaxInt64, live: 10 * mib, objects: 10 * mib, held: 20 * mib, procs: 2},
	}
}

func (w *host) Open(name string) (fs.File, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened[name]++
	if err := w.broken[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if w.built == nil {
		w.built = w.files.fs()
	}
	return w.built.Open(name)
}

// app sets a file of the cgroup /app.
func (w *host) app(name, content string) { w.write("sys/fs/cgroup/app/"+name, content) }

func (w *host) write(name, content string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files[name], w.built = content, nil
	delete(w.broken, name)
}

func (w *host) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, name)
	w.built = nil
}

// deny makes every Open of name fail.
func (w *host) deny(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[name] = err
}

func (w *host) opens(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened[name]
}

// runtime changes the runtime.
func (w *host) runtime(do func(*goStats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(&w.stats)
}

func (w *host) collections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.collects
}

func (w *host) outside() outside {
	return outside{
		physical: memTotal,
		runtime: func() func() goStats {
			return func() goStats {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.stats
			}
		},
		collect: func() {
			w.mu.Lock()
			w.collects++
			do := w.collect
			w.mu.Unlock()
			if do != nil {
				do()
			}
		},
	}
}

// monitor opens a monitor of w, in a bubble, for the length of the test.
func (w *host) monitor(t *testing.T, change func(*Config)) *Monitor {
	t.Helper()
	c := DefaultConfig()
	c.Root = w
	if change != nil {
		change(&c)
	}
	m, err := open(c, w.outside())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// after lets n samples pass, of a Period of 1 s, and all that follows from them.
func after(n int) {
	time.Sleep(time.Duration(n) * time.Second)
	synctest.Wait()
}

func wantSeverity(t *testing.T, m *Monitor, want Severity) {
	t.Helper()
	if got := m.Severity(); got != want {
		t.Fatalf("severity %v, want %v\n%s", got, want, describe(m.Snapshot()))
	}
}

func describe(s Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v by %q, sample %d\n", s.Severity, s.Signal, s.Samples)
	for _, x := range s.Signals {
		value := "-"
		if x.Value != nil {
			value = fmt.Sprint(*x.Value)
		}
		fmt.Fprintf(&b, "%s: %s %s %s %s %s\n", x.Name, x.State, value, x.Scope, x.Path, x.Reason)
	}
	return b.String()
}

// signalOf returns one input of a snapshot.
func signalOf(t testing.TB, s Snapshot, id signal) Signal {
	t.Helper()
	for _, x := range s.Signals {
		if x.Name == id.String() {
			return x
		}
	}
	t.Fatalf("no signal %v in %+v", id, s)
	return Signal{}
}

// wantValue checks that a signal is known, to six places.
func wantValue(t testing.TB, s Signal, want float64) {
	t.Helper()
	if s.Value == nil || math.Abs(*s.Value-want) > 1e-6 {
		t.Errorf("%s: %+v (value %v), want %v", s.Name, s, s.Value, want)
	}
}

// wantUnknown checks that a signal is unknown, with a reason that holds a text.
func wantUnknown(t testing.TB, s Signal, reason string) {
	t.Helper()
	if s.State != "unknown" || s.Value != nil || s.Reason == "" || !strings.Contains(s.Reason, reason) {
		t.Errorf("%s: %+v, want unknown because of %q", s.Name, s, reason)
	}
}

// logBuffer is a logger and what it was given.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// logger writes without times.
func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines returns what was logged, and forgets it.
func (b *logBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.TrimSpace(b.buf.String())
	b.buf.Reset()
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// fixture reads testdata/NAME.tree into a host: text, and then files, each below a line
// "-- path --", or "-- path ! EACCES --" for one that Open refuses.
func fixture(t testing.TB, name string) *host {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".tree")
	if err != nil {
		t.Fatal(err)
	}
	errnos := map[string]error{"EACCES": syscall.EACCES, "EOPNOTSUPP": syscall.EOPNOTSUPP}
	w := newHost()
	w.files = files{}
	at := ""
	for line := range strings.Lines(string(raw)) {
		text := strings.TrimSuffix(line, "\n")
		head, ok := strings.CutPrefix(text, "-- ")
		if head, end := strings.CutSuffix(head, " --"); ok && end {
			path, errno, refused := strings.Cut(head, " ! ")
			at = path
			w.files[at] = ""
			if refused {
				if errnos[errno] == nil {
					t.Fatalf("%s: %s: unknown error %q", name, path, errno)
				}
				w.broken[at] = errnos[errno]
			}
			continue
		}
		if at != "" {
			w.files[at] += line
		}
	}
	if len(w.files) == 0 {
		t.Fatalf("%s: no files", name)
	}
	return w
}

// full makes the working set of /app so many MiB of 1024.
func (w *host) full(mibs int64) { w.app("memory.current", fmt.Sprintln(mibs<<20)) }
