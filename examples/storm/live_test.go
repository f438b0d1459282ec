package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// playLive plays sc, by these flags, against the real gateway and the real back end. It
// returns the storm, of the app without headgate and of the one with it, and what the
// report's file says of it.
func playLive(t *testing.T, sc scenario, flags ...string) (*storm, results) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var told, table bytes.Buffer
	o, err := parse(append(flags, "-report", filepath.Join(dir, "report.html")), io.Discard)
	require.NoError(t, err)
	storms, err := playScenarios(ctx, o, []scenario{sc}, os.Environ(), progress{to: &told}, nil)
	require.NoError(t, err, told.String())
	require.NoError(t, publish(o, storms, &table))
	t.Logf("\n%s", &table)
	require.Len(t, storms[0].results, 2)

	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	var written results
	require.NoError(t, json.Unmarshal(text, &written))
	assert.Equal(t, *newResults(o, storms), written, "nothing is lost on the way to the file")
	return storms[0], written
}

// mostWaiting is how many waited in an app at the most.
func mostWaiting(r result) (most float64) {
	for _, p := range r.samples.waiting {
		most = max(most, p.V)
	}
	return most
}

// tableOf is the table of r, from behind the line of one storm on. All apps are set up "as
// an example".
func tableOf(t *testing.T, r *report, line string) string {
	t.Helper()
	for i := range r.Sections {
		r.Sections[i].Setting = "Each app: as an example"
	}
	var b bytes.Buffer
	require.NoError(t, r.writeTable(&b))
	_, text, found := strings.Cut(b.String(), line+"\n")
	require.True(t, found, b.String())
	return text
}

// long leaves out a test that takes long, by -short, and under the race detector, which would
// not see what it is about: its programs are built without it.
func long(t *testing.T, does string) {
	t.Helper()
	if testing.Short() || raceEnabled {
		t.Skip(does + ": left out by -short, and by -race, since what it builds is not raced")
	}
}
