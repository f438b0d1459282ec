package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParsePeers(t *testing.T) {
	none, err := parsePeers("")
	require.NoError(t, err)
	assert.Empty(t, none)
	some, err := parsePeers("gozero, chi")
	require.NoError(t, err)
	assert.Equal(t, []string{"gozero", "chi"}, []string{some[0].name, some[1].name}, "in the order asked for")
	for _, p := range peers() {
		assert.NotEmpty(t, p.what, p.name)
		assert.Contains(t, p.lacks, "bytes", "%s: the limit is chosen for one that counts requests", p.name)
		for _, word := range p.lacks {
			assert.Contains(t, lacksNote, word+" = ", "%s: what it lacks is said in words that are explained", p.name)
		}
	}
}

// The limit lets in as many bodies of the size that nine in ten do not exceed as have
// room in the budget, and at least one.
func TestLimitOfPeers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := &storm{calls: make([]call, 1+r.IntN(50))}
		for i := range s.calls {
			s.calls[i].size = r.Int64N(4 << 20)
		}
		budget := 1 + r.Int64N(64<<20)
		n := int64(s.limitPeers(options{}, budget).requests)
		fits := func(size int64) bool { return size*n <= budget || n == 1 }
		larger, tight := 0, false
		for _, c := range s.calls {
			if !fits(c.size) {
				larger++
			}
			tight = tight || c.size*(n+1) > budget
		}
		assert.LessOrEqual(t, 10*larger, len(s.calls), "more than one in ten bodies are too large for their share")
		assert.True(t, tight, "one more of every body would have room")
	}
	empty := &storm{calls: make([]call, 3)}
	assert.Equal(t, maxCalls, empty.limitPeers(options{}, 8<<20).requests, "bodies of no size have room for ever")

	load, err := prepare(options{seed: 1}, bodies())
	require.NoError(t, err)
	assert.Equal(t, peerLimit{4, "headgate's 8 MiB of bodies / 2 MiB, which nine in ten bodies do not exceed"}, load.limitPeers(options{}, 8<<20))
	load.scenario.limit = 7
	assert.Equal(t, peerLimit{7, "set by the scenario"}, load.limitPeers(options{}, 8<<20))
	assert.Equal(t, peerLimit{9, "by -peer-limit"}, load.limitPeers(options{peerLimit: 9}, 8<<20))
}

// Another library gets the same load after headgate, with a limit from its budget.
func TestAgainstPeers(t *testing.T) {
	s, argv := small(t, "serve")
	var log bytes.Buffer
	s.log = &sharedWriter{to: &log}
	apps := bareAndHeadgate(s.file, argv...)
	chi, gozero := peers()[0], peers()[2]
	apps = append(apps,
		variant{name: chi.name, argv: argv, ask: askPeer, peer: &chi},
		variant{name: gozero.name, argv: argv, ask: askPeer, peer: &gozero},
	)
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{}, apps))
	require.Len(t, s.results, 4)
	one := s.results[2]
	assert.Equal(t, "chi", one.name)
	// 8 MiB, as the stand-in says, and calls of 0 to 19 kB, nine in ten up to 17 kB.
	assert.Equal(t, 493, one.limit.requests)
	assert.Contains(t, log.String(), "-addr 127.0.0.1:0 -with chi -limit 493 -backlog 1024 -wait 30s")
	assert.Contains(t, log.String(), "-with gozero -limit 493")
	assert.Equal(t, int64(5<<20), one.peakFlight, "what the app says")
	assert.Equal(t, 2, int(one.samples.waiting[0].V))
	w := summarise(one)
	assert.Equal(t, counts{"status 429": 1}, w.refused, "the stand-in refuses an empty body")
	assert.Equal(t, 19, w.answered)

	sec := newReport(options{against: "chi,gozero"}, []*storm{s}).Sections[0]
	assert.Equal(t, []string{"none", "8 MiB", "493 requests", "493 requests"}, column2(sec, 1))
	assert.Equal(t, []string{"any limit", "-", strings.Join(chi.lacks, ", "), strings.Join(gozero.lacks, ", ")}, column2(sec, len(sec.Rows[0])-1))
	notes := strings.Join(sec.Notes, "\n")
	assert.Contains(t, notes, "chi, limit: 493 requests at once (headgate's 8 MiB of bodies / 17 KiB, which nine in ten bodies do not exceed); 1024 may wait, each up to 30.0 s\n")
	assert.Contains(t, notes, "gozero, limit: 493 requests at once (headgate's 8 MiB of bodies / 17 KiB, which nine in ten bodies do not exceed); nobody may wait\n")
}

// column2 is a column of a section's rows.
func column2(s section, i int) []string {
	var cells []string
	for _, row := range s.Rows {
		cells = append(cells, row[i])
	}
	return cells
}

// With a status that is a peer's refusal the app by itself refuses nothing: see
// TestWhatBecameOfACall for the same without refusals.
func TestPeersRefuseByStatus(t *testing.T) {
	c := &client{refusals: refusals()}
	for status, want := range map[int]verdict{429: refused, 503: refused, 500: wrong, 413: wrong} {
		v, why := c.judge(call{}, &http.Response{StatusCode: status}, nil)
		assert.Equal(t, want, v, status)
		assert.Equal(t, fmt.Sprintf("status %d", status), why)
	}
}

// fakeExamples makes a module that has the examples' name and a gateway, and no versus.
func fakeExamples(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module github.com/headgate-go/headgate/examples\n\ngo 1.25.0\n",
		"gateway/main.go": "package main\n\nfunc main() {}\n",
	} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return dir
}

// Where the other libraries' app cannot be built the storm says so and plays nothing.
func TestPeersThatCannotBeBuilt(t *testing.T) {
	dir := fakeExamples(t)
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	try := func() string {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 1, run(t.Context(), []string{"-against", "chi", "-quiet"}, os.Environ(), &stdout, &stderr))
		assert.Empty(t, stdout.String())
		assert.Contains(t, stderr.String(), "storm: -against: cannot build the app of the other libraries in "+filepath.Join(realPath(t, dir), "versus"))
		return stderr.String()
	}
	assert.Contains(t, try(), "versus", "the module is not there")

	versus := filepath.Join(dir, "versus")
	require.NoError(t, os.MkdirAll(filepath.Join(versus, "cmd", "app"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(versus, "go.mod"),
		[]byte("module versus\n\ngo 1.25.0\n\nrequire example.com/library v1.0.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(versus, "cmd", "app", "main.go"),
		[]byte("package main\n\nimport _ \"example.com/library\"\n\nfunc main() {}\n"), 0o600))
	text := try()
	assert.Contains(t, text, "example.com/library", "its modules are not to be had")
	assert.Contains(t, text, "from the module cache or over the network")
}

// realPath is dir as the go command names it.
func realPath(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	return found
}

// Outside the examples there is nothing to build.
func TestVersusOutsideTheExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	_, err := versusDir(t.Context())
	require.ErrorContains(t, err, "-against: cannot find the module github.com/headgate-go/headgate/examples, run storm in it")
}

// What is in another module must be there under the name that storm builds.
func TestVersusHasTheApp(t *testing.T) {
	dir, err := versusDir(t.Context())
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "cmd", "app", "main.go"))
	assert.FileExists(t, filepath.Join(dir, "go.mod"))
}

func TestScenarios(t *testing.T) {
	var seen []string
	for _, sc := range scenarios() {
		assert.NotContains(t, append(slices.Clone(seen), everything), sc.name, "a name stands for one thing")
		seen = append(seen, sc.name)
		assert.NotEmpty(t, sc.about, sc.name)
		assert.True(t, sc.length == 0 || sc.length >= time.Second, sc.name)
		assert.Positive(t, sc.wait, "%s: other libraries let nobody wait", sc.name)
		found, err := find(sc.name, true)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, sc.name, found[0].name)
	}
	all, err := find(everything, true)
	require.NoError(t, err)
	assert.Len(t, all, len(scenarios()))
	all, err = find(everything, false)
	require.NoError(t, err)
	assert.Len(t, all, len(scenarios())-1, "without a trace that one is left out")
	assert.False(t, slices.ContainsFunc(all, func(s scenario) bool { return s.virtual }))
	assert.Contains(t, bodies().config, "queue_timeout: "+bodies().wait.String(), "everybody waits as long")
}
