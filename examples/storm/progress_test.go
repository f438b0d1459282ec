package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// playOut is a stage of 4 requests: one is answered, one refused, one lost, and one
// waits until the end.
func playOut(p progress) {
	s := newStage("bare", 4)
	stop := p.follow(s)
	defer stop()
	ends := func(after time.Duration, v verdict) {
		go s.do(1, func() []outcome {
			time.Sleep(after)
			return []outcome{{verdict: v}}
		})
	}
	time.Sleep(500 * time.Millisecond)
	s.enter(sending)
	ends(600*time.Millisecond, answered)
	ends(2*time.Second, refused)
	time.Sleep(2 * time.Second)
	ends(100*time.Millisecond, lost)
	ends(1400*time.Millisecond, answered)
	time.Sleep(2 * time.Second)
	s.enter(stopping)
	time.Sleep(time.Second)
	s.enter(over)
}

func TestProgressInLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		p := progress{to: &told}
		p.say("building the %s", "app")
		playOut(p)
		assert.Equal(t, `building the app
bare 1s sending: sent 2/4, answered 0, waiting 2, refused 0
bare 2s sending: sent 2/4, answered 1, waiting 1, refused 0
bare 3s answering: sent 4/4, answered 1, waiting 1, refused 1, lost 1
bare 4s answering: sent 4/4, answered 2, waiting 0, refused 1, lost 1
bare 5s stopping: sent 4/4, answered 2, waiting 0, refused 1, lost 1
bare 5s over: sent 4/4, answered 2, waiting 0, refused 1, lost 1
`, told.String())
	})
}

// On a terminal each line takes the place of the one before, and the last one stays.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		playOut(progress{to: &told, live: true})
		text, ended := strings.CutSuffix(told.String(), "\n")
		assert.True(t, ended)
		assert.NotContains(t, text, "\n")
		lines := strings.Split(text, "\r")
		assert.Empty(t, lines[0], "each begins at the left")
		assert.GreaterOrEqual(t, len(lines), 25, "several a second")
		for _, l := range lines[1:] {
			assert.Len(t, l, liveWidth, "all of the one before is covered, and nothing wraps")
		}
		assert.Equal(t, "bare 0s starting: sent 0/4, answered 0, waiting 0, refused 0", strings.TrimRight(lines[1], " "))
		assert.Equal(t, "bare 5s over: sent 4/4, answered 2, waiting 0, refused 1, lost 1", strings.TrimRight(lines[len(lines)-1], " "))
	})
}

func TestNoProgress(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		var p progress
		p.say("nobody hears this")
		playOut(p)
	})
}

func TestWhatIsATerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	assert.False(t, isTerminal(f))
	assert.False(t, isTerminal(io.Discard))
}

// The storm ends when nobody can read any more how it goes.
func TestSharedWriter(t *testing.T) {
	ended := 0
	var to bytes.Buffer
	w := &sharedWriter{to: &to, broken: func() { ended++ }}
	_, err := io.WriteString(w, "a line")
	require.NoError(t, err)
	assert.Equal(t, "a line", to.String())
	assert.Zero(t, ended)
	w.to = fullDisk{}
	_, err = io.WriteString(w, "a line")
	require.EqualError(t, err, errors.New("disk full").Error())
	assert.Equal(t, 1, ended)
}
