package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// small is a storm of a few calls, for stand-ins.
func small(t *testing.T, mode string) (*storm, []string) {
	t.Helper()
	argv, env := standInApp(t, mode)
	s := &storm{
		title: "a few calls", pool: newPool(1), config: "admission:\n  queue_timeout: 30s\n",
		file: filepath.Join(t.TempDir(), "headgate.yaml"), env: env,
	}
	for i := range 20 {
		s.calls = append(s.calls, call{at: time.Duration(i) * 10 * time.Millisecond, size: int64(i) * 1000})
	}
	s.pool.complete(rand.New(rand.NewPCG(1, 1)), s.calls)
	return s, argv
}

func TestBothVariants(t *testing.T) {
	s, argv := small(t, "serve")
	var progress bytes.Buffer
	results, err := s.both(t.Context(), options{limitBy: limitAuto}, &progress, argv...)
	require.NoError(t, err)
	require.Len(t, results, 2)
	for _, r := range results {
		w := summarise(r)
		assert.Equal(t, 20, w.answered, "%+v", w)
		assert.Empty(t, w.lost)
		assert.Positive(t, w.p50)
		assert.NotEmpty(t, r.samples.flight)
		if runtime.GOOS != "windows" {
			assert.Equal(t, "exit 0", w.end)
		}
		if runtime.GOOS == "linux" {
			assert.Greater(t, w.peakMemory, int64(1<<20))
			assert.NotEmpty(t, r.samples.memory)
		}
	}
	bare, with := results[0], results[1]
	assert.Equal(t, "bare", bare.name)
	assert.Positive(t, bare.peakFlight)
	assert.Empty(t, bare.samples.waiting)
	assert.Equal(t, int64(7<<20), with.peakFlight)
	assert.Equal(t, int64(8<<20), with.samples.budget)
	assert.Equal(t, "cgroup", with.samples.source)
	assert.Equal(t, 3, int(with.samples.waiting[0].V))
	assert.Equal(t, "bare: 20 requests\nheadgate: 20 requests\n", progress.String())
	config, err := os.ReadFile(s.file)
	require.NoError(t, err)
	assert.Contains(t, string(config), "max_inflight_bytes: 8MiB", "nothing derives it without a limit")
}

func TestAppThatRefuses(t *testing.T) {
	s, argv := small(t, "refuse")
	results, err := s.both(t.Context(), options{limitBy: limitAuto}, io.Discard, argv...)
	require.NoError(t, err)
	w := summarise(results[1])
	assert.Equal(t, counts{"admission_busy": 20}, w.refused)
	assert.Zero(t, w.answered)
	assert.Zero(t, w.p99)
}

// When the app dies the storm goes on, and counts what is lost.
func TestAppThatDies(t *testing.T) {
	s, argv := small(t, "crash")
	results, err := s.both(t.Context(), options{limitBy: limitAuto}, io.Discard, argv...)
	require.NoError(t, err)
	for _, r := range results {
		w := summarise(r)
		assert.Equal(t, 20, w.lost.sum(), w.lost)
		assert.Positive(t, r.died)
		assert.Contains(t, w.end, "crashed: out of memory after ")
	}
}

func TestAppThatDoesNotStart(t *testing.T) {
	s, argv := small(t, "fail")
	_, err := s.both(t.Context(), options{limitBy: limitAuto}, io.Discard, argv...)
	require.ErrorContains(t, err, "bare: the app ended at once: exit status 3")
	require.ErrorContains(t, err, "no such config")

	_, err = start(t.Context(), []string{filepath.Join(t.TempDir(), "none")}, nil, &memoryLimit{}, nil)
	require.ErrorContains(t, err, "cannot start the app")
}

func TestInterruptedStormLeavesNoApp(t *testing.T) {
	s, argv := small(t, "serve")
	s.calls[19].at = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	progress := writerFunc(func(b []byte) { time.AfterFunc(300*time.Millisecond, cancel) })
	_, err := s.both(ctx, options{limitBy: limitAuto}, progress, argv...)
	require.ErrorIs(t, err, context.Canceled) // both waits for the app's end
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func TestTail(t *testing.T) {
	var to bytes.Buffer
	l := &tail{to: &to}
	for range 3 {
		_, _ = l.Write([]byte(strings.Repeat("x", tailBytes)))
	}
	assert.False(t, l.outOfMemory())
	_, _ = l.Write([]byte("cannot allocate "))
	_, _ = l.Write([]byte("memory"))
	assert.True(t, l.outOfMemory())
	_, _ = l.Write([]byte(strings.Repeat("y", 2*tailBytes)))
	assert.True(t, l.outOfMemory(), "for good")
	assert.Equal(t, strings.Repeat("y", tailBytes), l.String())
	assert.Equal(t, 5*tailBytes+22, to.Len())
}
