package pressure

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30

	noGoLimit = math.MaxInt64
)

// files is a tree that stands for "/": path to content.
type files map[string]string

func (f files) fs() fstest.MapFS {
	m := fstest.MapFS{}
	for name, content := range f {
		m[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o444}
	}
	return m
}

// with returns the tree with more files; a directory ends in "/".
func (f files) with(more files) files {
	all := files{}
	for _, m := range []files{f, more} {
		for name, content := range m {
			all[name] = content
		}
	}
	return all
}

// machine is a tree with 24 GiB of memory and nothing else.
var machine = files{"proc/meminfo": "MemTotal:       25165824 kB\nMemFree:        24583864 kB\n"}

const machineBytes = 24 * gib

// hybridMounts is the shape of a hybrid host: v2 without memory beside v1.
const hybridMounts = `22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
31 23 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw
33 31 0:30 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:12 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:13 - cgroup cgroup rw,memory
`

// failFS answers Open, or the Read after it, of some names with an error.
type failFS struct {
	fs.FS
	open, read map[string]error
}

func (f failFS) Open(name string) (fs.File, error) {
	if err := f.open[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	file, err := f.FS.Open(name)
	if readErr := f.read[name]; err == nil && readErr != nil {
		return readerFile{file, errReader{&fs.PathError{Op: "read", Path: name, Err: readErr}}}, nil
	}
	return file, err
}

func denied(tree fs.FS, names ...string) fs.FS {
	f := failFS{FS: tree, open: map[string]error{}}
	for _, name := range names {
		f.open[name] = syscall.EACCES
	}
	return f
}

type readerFile struct {
	fs.File
	r io.Reader
}

func (f readerFile) Read(p []byte) (int, error) { return f.r.Read(p) }

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// endlessFS has no end to the content of one file; it counts what is read of it.
type endlessFS struct {
	fs.FS
	name, content string
	n             *int
}

func (f endlessFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err == nil && name == f.name {
		return readerFile{file, &endless{f.content, 0, f.n}}, nil
	}
	return file, err
}

type endless struct {
	content string
	at      int
	n       *int
}

func (e *endless) Read(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := copy(rest, e.content[e.at:])
		e.at, rest = (e.at+n)%len(e.content), rest[n:]
	}
	*e.n += len(p)
	return len(p), nil
}

// check compares all but the Reason, which must hold each of the given texts, or be empty when
// none is given.
func check(t *testing.T, got, want Ceiling, reason ...string) {
	t.Helper()
	told := got.Reason
	got.Reason = ""
	if got != want {
		t.Errorf("got %+v, want %+v (reason %q)", got, want, told)
	}
	if len(reason) == 0 && told != "" {
		t.Errorf("reason %q, want none", told)
	}
	for _, text := range reason {
		if !strings.Contains(told, text) {
			t.Errorf("reason %q, want %q in it", told, text)
		}
	}
}

func cgroupCeiling(bytes int64, path string) Ceiling {
	return Ceiling{Bytes: bytes, Source: SourceCgroup, Path: path}
}

var physicalCeiling = Ceiling{Bytes: machineBytes, Source: SourcePhysical}

func TestReadLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"a", []string{"a"}},
		{"a\nb\n", []string{"a", "b"}},
		{"a\r\nb\r\n", []string{"a", "b"}},
		{"a\n\nb", []string{"a", "", "b"}},
		{"a\n" + long + long + "\nb", []string{"a", "b"}}, // a line too long is skipped, the next one counts
		{"a\n" + long, []string{"a"}},
	} {
		var got []string
		err := eachLine(strings.NewReader(c.in), func(line string) bool {
			got = append(got, line)
			return true
		})
		if err != nil || strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
			t.Errorf("%.20q: got %.40q, %v; want %q", c.in, got, err, c.want)
		}
	}

	broken := io.MultiReader(strings.NewReader("a\ncut"), errReader{io.ErrUnexpectedEOF})
	var got []string
	err := eachLine(broken, func(line string) bool { got = append(got, line); return true })
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(got) != 1 || got[0] != "a" {
		t.Errorf("cut by an error: got %q, %v; want the whole line before it and the error", got, err)
	}
}

// Files without an end are read up to a bound, and the other bounds of memory still count.
func TestEndlessFiles(t *testing.T) {
	tree := machine.with(files{
		"proc/self/cgroup":           "0::/a\n",
		"proc/self/mountinfo":        "32 31 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/a/memory.max": "1073741824\n",
		"sys/fs/cgroup/memory.max":   "max\n",
	})
	const maxRead = maxLines + 2*maxLine
	for _, c := range []struct {
		name, content string
		want          Ceiling
		reason        string
	}{
		{"proc/self/cgroup", "0::/a\n" + strings.Repeat("7:pids:/a\n", 100), cgroupCeiling(gib, "/a"), "/proc/self/cgroup: longer"},
		{"proc/self/cgroup", strings.Repeat("0::/a", 1000), physicalCeiling, "/proc/self/cgroup: longer"},
		{"proc/self/mountinfo", strings.Repeat("x", 1000), cgroupCeiling(gib, "/a"), "/proc/self/mountinfo: longer"},
		{"sys/fs/cgroup/a/memory.max", "1", physicalCeiling, "/sys/fs/cgroup/a/memory.max: longer"},
		{"proc/meminfo", strings.Repeat("MemFree: 1 kB\n", 100), cgroupCeiling(gib, "/a"), "/proc/meminfo: longer"},
	} {
		n := 0
		done := make(chan Ceiling, 1)
		go func() { done <- ReadCeiling(endlessFS{tree.fs(), c.name, c.content, &n}, noGoLimit) }()
		select {
		case got := <-done:
			check(t, got, c.want, c.reason)
		case <-time.After(time.Minute):
			t.Fatalf("%s: still reading", c.name)
		}
		if n == 0 || n > maxRead {
			t.Errorf("%s: %d bytes read, want 1..%d", c.name, n, maxRead)
		}
	}
}
