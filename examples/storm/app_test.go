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
		title: "a few calls", pool: newPool(1), file: filepath.Join(t.TempDir(), "headgate.yaml"), env: env,
		scenario: scenario{name: "few", config: "admission:\n  queue_timeout: 30s\n", wait: 30 * time.Second},
	}
	for i := range 20 {
		s.calls = append(s.calls, call{at: time.Duration(i) * 10 * time.Millisecond, size: int64(i) * 1000})
	}
	s.pool.complete(rand.New(rand.NewPCG(1, 1)), s.calls)
	return s, argv
}

func TestBothVariants(t *testing.T) {
	s, argv := small(t, "serve")
	var told bytes.Buffer
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{to: &told}, bareAndHeadgate(s.file, argv...)))
	require.Len(t, s.results, 2)
	for _, r := range s.results {
		w := summarise(r)
		assert.Equal(t, 20, w.answered, "%+v", w)
		assert.Empty(t, w.lost)
		assert.Positive(t, w.all.p50)
		assert.NotEmpty(t, r.samples.flight)
		if runtime.GOOS != "windows" {
			assert.Equal(t, "exit 0", w.end)
		}
		if runtime.GOOS == "linux" {
			assert.Greater(t, w.peakMemory, int64(1<<20))
			assert.NotEmpty(t, r.samples.memory)
		}
	}
	bare, with := s.results[0], s.results[1]
	assert.Equal(t, "bare", bare.name)
	assert.Positive(t, bare.peakFlight)
	assert.Empty(t, bare.samples.waiting)
	assert.Equal(t, int64(7<<20), with.peakFlight)
	assert.Equal(t, int64(8<<20), with.samples.budget)
	assert.Equal(t, "cgroup", with.samples.source)
	assert.Equal(t, 3, int(with.samples.waiting[0].V))
	for _, app := range []string{"bare", "headgate"} {
		assert.Regexp(t, `(?m)^`+app+` \d+s over: sent 20/20, answered 20, waiting 0, refused 0$`, told.String())
	}
	config, err := os.ReadFile(s.file)
	require.NoError(t, err)
	assert.Contains(t, string(config), "max_inflight_bytes: 8MiB", "nothing derives it without a limit")
}

func TestAppThatRefuses(t *testing.T) {
	s, argv := small(t, "refuse")
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{}, bareAndHeadgate(s.file, argv...)))
	w := summarise(s.results[1])
	assert.Equal(t, counts{"admission_busy": 20}, w.refused)
	assert.Zero(t, w.answered)
	assert.Zero(t, w.all)
}

// When the app dies the storm goes on, and counts what is lost.
func TestAppThatDies(t *testing.T) {
	s, argv := small(t, "crash")
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{}, bareAndHeadgate(s.file, argv...)))
	for _, r := range s.results {
		w := summarise(r)
		assert.Equal(t, 20, w.lost.sum(), w.lost)
		assert.Positive(t, r.died)
		assert.Contains(t, w.end, "crashed: out of memory after ")
	}
}

func TestAppThatDoesNotStart(t *testing.T) {
	s, argv := small(t, "fail")
	err := s.all(t.Context(), options{limitBy: limitAuto}, progress{}, bareAndHeadgate(s.file, argv...))
	require.ErrorContains(t, err, "bare: the app ended at once: exit status 3")
	require.ErrorContains(t, err, "no such config")

	_, err = start(t.Context(), []string{filepath.Join(t.TempDir(), "none")}, nil, &memoryLimit{}, nil)
	require.ErrorContains(t, err, "cannot start the app")
}

func TestInterruptedStormLeavesNoApp(t *testing.T) {
	s, argv := small(t, "serve")
	s.calls[19].at = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	var told bytes.Buffer
	p := progress{to: io.MultiWriter(&told, writerFunc(func([]byte) { cancel() }))} // at its first line
	err := s.all(ctx, options{limitBy: limitAuto}, p, bareAndHeadgate(s.file, argv...))
	require.ErrorIs(t, err, context.Canceled) // all waits for the app's end
	assert.NotContains(t, told.String(), over)
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

// Each storm is played against each app, in order, and one report holds all.
func TestEachStorm(t *testing.T) {
	first, argv := small(t, "serve")
	second, _ := small(t, "serve")
	second.scenario.name, second.title, second.file = "more", "some more calls", first.file
	second.calls = second.calls[:7]
	storms := []*storm{first, second}
	var told, table bytes.Buffer
	o := options{limitBy: limitAuto, json: filepath.Join(t.TempDir(), "results.json")}
	require.NoError(t, each(t.Context(), o, progress{to: &told}, storms, bareAndHeadgate(first.file, argv...)))
	assert.Regexp(t, `(?s)^scenario few: 20 requests\nbare .*over.*headgate .*over.*scenario more: 7 requests\nbare .*over.*headgate .*over`, told.String())

	require.NoError(t, publish(o, storms, &table))
	assert.Regexp(t, `(?s)a few calls; 20 requests.*bare.*headgate.*some more calls; 7 requests.*bare.*headgate`, table.String())
	assert.Equal(t, 1, strings.Count(table.String(), "\nanswered: "), "what the columns mean is said once")
	r := newResults(o, storms)
	for i, s := range storms {
		assert.Equal(t, s.scenario.name, r.Scenarios[i].Name)
		assert.Equal(t, len(s.calls), r.Scenarios[i].Requests)
		for _, a := range r.Scenarios[i].Apps {
			assert.Equal(t, len(s.calls), a.Answered)
		}
	}

	second.env = append(second.env, standInMode+"=fail")
	err := each(t.Context(), o, progress{}, storms, bareAndHeadgate(first.file, argv...))
	require.ErrorContains(t, err, "scenario more: bare: the app ended at once")
}
