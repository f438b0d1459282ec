package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStormAgainst plays a small storm against the real apps, from the command line to
// the files. It is here and not beside the storm because it builds all that this module
// requires: whoever tests this module has that, whoever tests the examples needs none
// of it. It is played also with -short, which is how make check runs this module.
func TestStormAgainst(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the storm builds its apps: needs the go command in PATH")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // the first build takes most of it
	defer cancel()

	// 24 calls of 40 kB (a token is 4 bytes) come at once and are held for 200 ms.
	const calls = 24
	trace := "arrival_ms,input_tokens,output_tokens\n" + strings.Repeat("0,10000,100\n", calls)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trace.csv"), []byte(trace), 0o600))
	examples := filepath.Join("..", "..", "..")
	env := append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GOWORK=") }), "GOWORK=off")
	storm := filepath.Join(dir, "storm.exe") // a name that every system can start
	build := exec.CommandContext(ctx, "go", "build", "-o", storm, "./storm")
	build.Dir, build.Env = examples, env
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	cmd := exec.CommandContext(ctx, storm, "-trace", filepath.Join(dir, "trace.csv"), "-duration", "1s",
		"-against", strings.ReplaceAll(names(), " ", ""), "-peer-limit", "4", "-report", filepath.Join(dir, "report.html"))
	cmd.Dir, cmd.Env = examples, env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it stops its apps
	cmd.WaitDelay = 30 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s", &stderr)
	t.Logf("\n%s", &stdout)

	var got struct {
		Scenarios []struct {
			Requests int
			Apps     []row
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "report.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &got))
	require.Len(t, got.Scenarios, 1)
	assert.Equal(t, calls, got.Scenarios[0].Requests)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)

	apps := map[string]row{}
	for _, a := range got.Scenarios[0].Apps {
		apps[a.App] = a
		assert.Equal(t, calls, a.Answered+a.Refused+a.Lost+a.Wrong, a.App)
		assert.Zero(t, a.Wrong, a.App)
		assert.Contains(t, string(page), "<td>"+a.App+"</td>")
		assert.Contains(t, stdout.String(), "\n"+a.App+" ")
		assert.Regexp(t, fmt.Sprintf(`(?m)^%s \d+s over: sent %d/%d, answered %d,`, a.App, calls, calls, a.Answered), stderr.String())
	}
	for _, p := range peers() {
		require.Contains(t, apps, p.name, "the storm and this app know the same libraries")
		a := apps[p.name]
		assert.Equal(t, 4, a.LimitRequests)
		assert.Contains(t, a.Lacks, "bytes")
		assert.Positive(t, a.PeakInflightBytes, "%s: its status is read", p.name)
		assert.LessOrEqual(t, a.PeakInflightBytes, 4*40_000, p.name)
	}
	for _, name := range []string{"bare", "headgate", "chi", "failsafe"} { // they have room to wait, or no limit
		assert.Equal(t, calls, apps[name].Answered, name)
	}
	assert.GreaterOrEqual(t, apps["gozero"].Answered, 4)
	assert.Positive(t, apps["gozero"].Refused)
}

// row is the part of an app's results that is looked at.
type row struct {
	App               string   `json:"app"`
	LimitRequests     int      `json:"limit_requests"`
	Lacks             []string `json:"lacks"`
	Answered          int      `json:"answered"`
	Refused           int      `json:"refused"`
	Lost              int      `json:"lost"`
	Wrong             int      `json:"wrong"`
	PeakInflightBytes int      `json:"peak_inflight_bytes"`
}
