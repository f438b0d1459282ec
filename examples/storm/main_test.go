package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standInMode makes this test binary an app that behaves in some way.
const standInMode = "STORM_TEST_STAND_IN"

func TestMain(m *testing.M) {
	if mode := os.Getenv(standInMode); mode != "" {
		standIn(mode)
		return
	}
	os.Exit(m.Run())
}

// standIn is an app as small as can be: "serve" does what the gateway does, "refuse"
// refuses bodies, "crash" ends at the first body, "fail" at once. With another library
// it refuses empty bodies.
func standIn(mode string) {
	if mode == "fail" {
		fmt.Fprintln(os.Stderr, "no such config")
		os.Exit(3)
	}
	fmt.Fprintln(os.Stderr, strings.Join(os.Args[1:], " "))
	library := slices.Contains(os.Args, "-with")
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		if library && r.ContentLength == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		switch mode {
		case "crash":
			fmt.Fprint(os.Stderr, "fatal error: runtime: out of mem", "ory\n", strings.Repeat("stack\n", tailBytes))
			os.Exit(2)
		case "refuse":
			w.Header().Set("Headgate-Reason", "admission_busy")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			return
		}
		fmt.Fprintf(w, `{"bytes": %d, "sha256": %q}`, n, hex.EncodeToString(h.Sum(nil)))
	})
	mux.HandleFunc("GET /headgate/status", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"admission": {"inflight_bytes": 7340032, "max_inflight_bytes": 8388608, "budget_source": "cgroup", "waiting": 3}}`)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"with": "chi", "inflight_bytes": 5242880, "waiting": 2}`)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("listening on http://%s\n", l.Addr())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(l, mux))
}

// app that is this test binary.
func standInApp(t *testing.T, mode string) (argv, env []string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return []string{self}, append(os.Environ(), standInMode+"="+mode)
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-scenario hail", `-scenario is "hail": want bodies, memory, retry, tenants, trace, or all`},
		{"-nonsense", "flag provided but not defined: -nonsense"},
		{"bodies", `unexpected argument "bodies"`},
		{"-duration -1s", "-duration is -1s"},
		{"-duration 2h", "-duration is 2h0m0s"},
		{"-trace x -speed NaN", "-speed is NaN"},
		{"-trace x -limit -2", "-limit is -2"},
		{"-speed 2", "-speed and -limit are for a -trace"},
		{"-memory 3", "-memory is 3B: want 64MiB to 1TiB, or 0 for none"},
		{"-memory lots", "want a whole number of bytes"},
		{"-limit-by hope", `-limit-by is "hope": want auto, cgroup or rlimit`},
		{"-report nowhere/report.html", `-report is "nowhere/report.html": nowhere is not a directory`},
		{"-json nowhere/report.json", `-json is "nowhere/report.json": nowhere is not a directory`},
		{"-report report.json", `-report is "report.json": that is where the JSON goes`},
		{"-report x.html -json ./x.html", `-report is "x.html": that is where the JSON goes`},
		{"-scenario retry -trace x", "-trace takes the place of the load of -scenario bodies: not with -scenario retry"},
		{"-scenario memory -trace x", "-trace takes the place of the load of -scenario bodies: not with -scenario memory"},
		{"-scenario tenants -trace x", "-trace takes the place of the load of -scenario bodies: not with -scenario tenants"},
		{"-scenario tenants -against chi", "-against: those libraries limit what comes in, and -scenario tenants is about calls to a back end"},
		{"-scenario retry -against chi", "-against: those libraries limit what comes in, and -scenario retry is about calls to a back end"},
		{"-scenario trace", "-scenario trace plays the tenants of a -trace: name its file"},
		{"-scenario trace -trace x -speed 2", "-speed and -limit are for a -trace of bodies: not with -scenario trace"},
		{"-scenario all -trace x -limit 2", "-speed and -limit are for a -trace of bodies: not with -scenario all"},
		{"-scenario trace -trace x -against chi", "-against: those libraries limit what comes in, and -scenario trace is about calls to a back end"},
		{"-against nginx", `-against names "nginx": want chi, failsafe, gozero`},
		{"-against chi,,gozero", `-against names "": want chi, failsafe, gozero`},
		{"-against chi,chi", "-against names chi twice"},
		{"-against chi -peer-limit -1", "-peer-limit is -1"},
		{"-peer-limit 4", "-peer-limit is for -against"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), strings.Fields(c.args), nil, &stdout, &stderr)
		assert.Equal(t, 2, code, c.args)
		assert.Contains(t, stderr.String(), c.want, c.args)
		assert.Empty(t, stdout.String(), c.args)
	}
}

func TestHelpNamesTheScenarios(t *testing.T) {
	var stderr bytes.Buffer
	_, err := parse([]string{"-h"}, &stderr)
	require.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, stderr.String(), "what to play: bodies, memory, retry, tenants, trace, or all")
	assert.Contains(t, stderr.String(), "chi, failsafe, gozero")
	assert.Equal(t, 0, run(context.Background(), []string{"-h"}, nil, io.Discard, io.Discard))
}

func TestTraceThatIsNotThere(t *testing.T) {
	var stderr bytes.Buffer
	file := filepath.Join(t.TempDir(), "none.csv")
	assert.Equal(t, 1, run(context.Background(), []string{"-trace", file}, nil, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "none.csv")
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stderr bytes.Buffer
	assert.Equal(t, 1, run(ctx, []string{"-duration", "1s"}, os.Environ(), io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "storm: interrupted")
}

// The bar of the memory storm, against the real gateway.
func TestStorm(t *testing.T) {
	long(t, "builds the gateway and plays a storm of some 20 s")
	report := filepath.Join(t.TempDir(), "report.html")
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	var told bytes.Buffer
	o, err := parse([]string{"-duration", "1s", "-report", report}, io.Discard)
	require.NoError(t, err)
	storms, err := play(ctx, o, os.Environ(), progress{to: &told}, nil)
	require.NoError(t, err, told.String())
	require.Len(t, storms, 1)
	s := storms[0]
	var table bytes.Buffer
	require.NoError(t, publish(o, storms, &table))
	t.Logf("\n%s", &table)

	require.Len(t, s.results, 2)
	bare, with := summarise(s.results[0]), summarise(s.results[1])
	for _, r := range []row{bare, with} {
		assert.Equal(t, len(s.calls), r.total, r.name)
		assert.Equal(t, r.total, r.answered+r.refused.sum()+r.lost.sum()+r.wrong.sum(), r.name)
		assert.Empty(t, r.wrong, r.name)
	}
	assert.Empty(t, bare.refused, "nobody is there to refuse")
	assert.Equal(t, "exit 0", with.end)
	assert.Empty(t, with.lost, "every request is answered")
	assert.Equal(t, int64(8<<20), with.budget)
	assert.GreaterOrEqual(t, 10*with.peakFlight, 9*with.budget, "the budget is used")
	assert.LessOrEqual(t, with.peakFlight, with.budget)

	page, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(page), "</html>")
	text, err := os.ReadFile(strings.TrimSuffix(report, ".html") + ".json")
	require.NoError(t, err)
	var r results
	require.NoError(t, json.Unmarshal(text, &r))
	assert.Equal(t, *newResults(o, storms), r, "nothing is lost on the way to the file")
}
