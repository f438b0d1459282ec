package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree makes files below a directory that stands for "/".
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return root
}

func TestWhereACgroupCanBeMade(t *testing.T) {
	const (
		self = "proc/self/cgroup"
		fs   = "sys/fs/cgroup"
		pass = "/cgroup.subtree_control"
	)
	for _, c := range []struct {
		name  string
		files map[string]string
		dir   string // "" = nowhere
		v1    bool
	}{
		{"v1", map[string]string{
			self: "5:cpu:/\n4:memory:/a/b\n0::/\n", fs + "/memory/a/b/memory.limit_in_bytes": "",
		}, fs + "/memory/a/b", true},
		{"v1 in a container", map[string]string{
			self: "4:memory:/docker/abc\n", fs + "/memory/memory.limit_in_bytes": "",
		}, fs + "/memory", true},
		{"v2, itself", map[string]string{
			self: "0::/a\n", fs + "/a" + pass: "cpu memory pids\n", fs + pass: "memory",
		}, fs + "/a", false},
		{"v2, above", map[string]string{
			self: "0::/user.slice/user-0.slice/session-1.scope\n", fs + "/user.slice/user-0.slice/session-1.scope" + pass: "\n",
			fs + "/user.slice/user-0.slice" + pass: "memory pids\n", fs + pass: "memory",
		}, fs + "/user.slice/user-0.slice", false},
		{"v2, nobody passes it on", map[string]string{self: "0::/\n", fs + pass: "cpu\n"}, "", false},
		{"a path that climbs", map[string]string{self: "0::/../../..\n", fs + pass: "memory\n"}, fs, false},
		{"no cgroup at all", nil, "", false},
		{"nonsense", map[string]string{self: "hello\n\n:\n"}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.files)
			dir, v1, err := findParent(root)
			if c.dir == "" {
				require.ErrorContains(t, err, "no cgroup")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(root, c.dir), dir)
			assert.Equal(t, c.v1, v1)
		})
	}
}

func TestKills(t *testing.T) {
	dir := tree(t, map[string]string{
		"memory.events":      "low 0\nmax 5\noom 3\noom_kill 2\n",
		"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",

		"memory.peak":               "1048576\n",
		"memory.max_usage_in_bytes": "2097152\n",
	})
	assert.Equal(t, int64(2), (&memoryLimit{group: dir}).kills())
	assert.Equal(t, int64(1), (&memoryLimit{group: dir, v1: true}).kills())
	assert.Zero(t, (&memoryLimit{group: t.TempDir()}).kills())
	assert.Zero(t, (&memoryLimit{}).kills())

	assert.Equal(t, &groupCounts{kills: 2, peak: 1 << 20}, (&memoryLimit{group: dir}).counts())
	assert.Equal(t, &groupCounts{kills: 1, peak: 2 << 20}, (&memoryLimit{group: dir, v1: true}).counts())
	assert.Equal(t, &groupCounts{}, (&memoryLimit{group: t.TempDir()}).counts(), "what the kernel does not tell")
	assert.Nil(t, (&memoryLimit{}).counts())
}

func TestNoLimit(t *testing.T) {
	m, err := newMemoryLimit(t.Context(), 0, limitAuto)
	require.NoError(t, err)
	defer m.close()
	assert.Equal(t, []string{"app", "-x"}, m.wrap("app", "-x"))
	assert.Equal(t, "no memory limit", m.how)
}

// under runs a command of the shell under a limit and returns its output.
func under(t *testing.T, m *memoryLimit, command string) (string, error) {
	t.Helper()
	argv := m.wrap("/bin/sh", "-c", command)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestRlimit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("RLIMIT_DATA limits memory on Linux only")
	}
	m, err := newMemoryLimit(t.Context(), 256<<20, limitRlimit)
	require.NoError(t, err)
	defer m.close()
	out, err := under(t, m, "ulimit -d")
	require.NoError(t, err)
	assert.Equal(t, "262144", out)
	assert.Equal(t, "RLIMIT_DATA 256 MiB", m.how)
}

func TestCgroup(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are cgroups on Linux only")
	}
	m, err := newMemoryLimit(t.Context(), 64<<20, limitCgroup)
	if err != nil {
		t.Skipf("needs the right to make a cgroup with the memory controller: %v", err)
	}
	defer m.close()
	out, err := under(t, m, "cat /proc/self/cgroup")
	require.NoError(t, err)
	assert.Contains(t, out, filepath.Base(m.group))
	assert.Zero(t, m.kills())

	// A shell that doubles a string until it may not.
	_, err = under(t, m, `x=0123456789abcdef; while :; do x=$x$x; done`)
	require.Error(t, err)
	assert.Positive(t, m.kills())

	m.close()
	assert.NoDirExists(t, m.group)
}

// With auto there is always a limit, or a word on why not.
func TestAutoSaysWhatItFound(t *testing.T) {
	m, err := newMemoryLimit(t.Context(), 256<<20, limitAuto)
	require.NoError(t, err)
	defer m.close()
	if m.bytes == 0 {
		assert.Contains(t, m.how, "no memory limit: ")
	} else {
		assert.Contains(t, m.how, "256 MiB")
	}
}

func TestConfigure(t *testing.T) {
	const text = "admission:\n  queue_timeout: 30s\n"
	assert.Equal(t, text, configure(text, &memoryLimit{bytes: 256 << 20, group: "/g"}), "headgate finds it")
	assert.Equal(t, "admission:\n  max_inflight_bytes: 32MiB\n  queue_timeout: 30s\n", configure(text, &memoryLimit{bytes: 1 << 30}))
	assert.Equal(t, "admission:\n  max_inflight_bytes: 8MiB\n  queue_timeout: 30s\n", configure(text, &memoryLimit{}))
}

func TestParseMemory(t *testing.T) {
	m, ok := parseMemory("Name:\tgateway\nVmHWM:\t  267012 kB\nVmRSS:\t   45678 kB\nThreads:\t7\n")
	assert.True(t, ok)
	assert.Equal(t, memory{now: 45678 << 10, peak: 267012 << 10}, m)
	_, ok = parseMemory("Name:\tgateway\nState:\tZ (zombie)\n")
	assert.False(t, ok)
	_, ok = readMemory(-1)
	assert.False(t, ok)
}
