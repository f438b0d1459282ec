package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// peer is another library whose middleware stands in front of the app instead of
// headgate. The command that stacks them is examples/versus/cmd/app, which knows them
// by the same names.
type peer struct {
	name  string
	what  string // of it is used
	queue string // who may wait, "" = nobody
	// lacks is what headgate has and it has not, as in the table; the column's note
	// says what the words mean.
	lacks []string
}

// peers are all there are.
func peers() []peer {
	return []peer{
		{
			name: "chi", what: "middleware.ThrottleBacklog of github.com/go-chi/chi/v5",
			queue: strconv.Itoa(backlog),
			lacks: []string{"bytes", "classes", "flows"},
		},
		{
			name: "failsafe", what: "the bulkhead of github.com/failsafe-go/failsafe-go as an http.Handler",
			queue: "any number",
			lacks: []string{"bytes", "classes", "flows", "queue bound", "Retry-After"},
		},
		{
			name: "gozero", what: "MaxConnsHandler and, inside it, SheddingHandler at its default of 90 % CPU, of github.com/zeromicro/go-zero",
			lacks: []string{"queue", "bytes", "classes", "flows", "Retry-After"},
		},
	}
}

// lacksNote says what the words in lacks mean.
const lacksNote = "of what headgate has: bytes = a limit in bytes, not in requests; classes = small bodies before large ones; " +
	"flows = fair order among clients; queue = room to wait; queue bound = a limit on who waits; Retry-After = when to come back"

// backlog is how many requests may wait where a library bounds that: headgate's own
// default.
const backlog = 1024

// refusals are the statuses with which the peers refuse. The app itself has no use
// for them.
func refusals() []int { return []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} }

// parsePeers reads the value of -against. The error lists the names.
func parsePeers(list string) ([]peer, error) {
	if list == "" {
		return nil, nil
	}
	var chosen []peer
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(peers(), func(p peer) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-against names %q: want %s", name, peerNames())
		}
		if slices.ContainsFunc(chosen, func(p peer) bool { return p.name == name }) {
			return nil, fmt.Errorf("-against names %s twice", name)
		}
		chosen = append(chosen, peers()[i])
	}
	return chosen, nil
}

func peerNames() string {
	var all []string
	for _, p := range peers() {
		all = append(all, p.name)
	}
	return strings.Join(all, ", ")
}

// peerLimit is how many requests a peer lets in at once, and why so many.
type peerLimit struct {
	requests int
	why      string
}

// limitPeers chooses the limit that one would choose who has so many bytes for bodies
// and can limit requests only: as many as fit, taken at the size that nine in ten
// bodies do not exceed. The mean would let in more large ones at once than there is
// room for, the largest would leave room unused nearly always.
func (s *storm) limitPeers(o options, budget int64) peerLimit {
	switch {
	case o.peerLimit > 0:
		return peerLimit{o.peerLimit, "by -peer-limit"}
	case s.scenario.limit > 0:
		return peerLimit{s.scenario.limit, "set by the scenario"}
	}
	var sizes []int64
	for _, c := range s.calls {
		sizes = append(sizes, c.size)
	}
	slices.Sort(sizes)
	usual := max(percentile(sizes, 0.9), 1)
	n := int(min(max(budget/usual, 1), maxCalls))
	return peerLimit{n, fmt.Sprintf("headgate's %s of bodies / %s, which nine in ten bodies do not exceed", mib(budget), short(usual))}
}

// short writes a size of any magnitude.
func short(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return mib(n)
}

// flags are what starts the app of a peer.
func (p peer) flags(s *storm, n peerLimit) []string {
	return []string{
		"-addr", "127.0.0.1:0", "-with", p.name, "-limit", strconv.Itoa(n.requests),
		"-backlog", strconv.Itoa(backlog), "-wait", s.scenario.wait.String(),
	}
}

// notes say of a peer's row what it ran with.
func (p peer) notes(s *storm, n peerLimit) []string {
	waiters := "nobody may wait"
	if p.queue != "" {
		waiters = fmt.Sprintf("%s may wait, each up to %s", p.queue, seconds(s.scenario.wait))
	}
	return []string{
		fmt.Sprintf("%s: %s", p.name, p.what),
		fmt.Sprintf("%s, limit: %d requests at once (%s); %s", p.name, n.requests, n.why, waiters),
	}
}

// versusDir returns the directory of examples/versus, the module with the peers' app.
func versusDir(ctx context.Context) (string, error) {
	const examples = "github.com/headgate-go/headgate/examples"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", examples).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", fmt.Errorf("-against: cannot find the module %s, run storm in it: %w", examples, err)
	}
	return filepath.Join(dir, "versus"), nil
}

// buildPeers builds the peers' app, which is in the module versus, into dir and
// returns the program's path. The error says what a build needs.
func buildPeers(ctx context.Context, versus, dir string) (string, error) {
	bin := executable(dir, "peers")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/app")
	cmd.Dir = versus
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off") // it is in no workspace, see versus/README.md
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("-against: cannot build the app of the other libraries in %s; it needs the Go version "+
			"and the modules of its go.mod, from the module cache or over the network: %w\n%s", versus, err, bytes.TrimSpace(out))
	}
	return bin, nil
}
