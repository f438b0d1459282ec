package gatetest

import (
	"fmt"
	"strings"
	"testing"
)

// elsewhere are the traps that no case of the suite stands for, and why.
func elsewhere() map[string]string {
	return map[string]string{
		"T25": "fasthttp allocates announced bodies before any handler runs: adapters/fiber/prebody",
		"T26": "fasthttp buffers multipart forms although bodies are streamed: adapters/fiber",
		"T27": "Fiber's streams have no limit of its own: adapters/fiber; that every adapter's reader stops at the cap is T20",
		"T29": "fasthttp's reading of a multipart epilogue: no code of ours is in it; adapters are tested with the newest one",
		"T33": "outcomes: no adapter reads any, decisions are told before the handler runs; that errors are answered once and rightly is T31 and T32",
		"T41": "a net/http limiter within a framework's bridge is its user's mistake: adapters/fiber shows what it does",
		"T46": "metrics are registered by no adapter: they stand on snapshots",
	}
}

// Every trap of a web framework is met by a case that bears its number, or it is written
// down why there is none.
func TestEveryTrapIsMet(t *testing.T) {
	const traps = 47
	named := map[string]bool{}
	for _, c := range newSuite(sample{poor: true}.adapter(), patience).cases() {
		for part := range strings.SplitSeq(c.name, "_") {
			named[part] = true
		}
	}
	for n := 1; n <= traps; n++ {
		id := fmt.Sprintf("T%02d", n)
		if why, ok := elsewhere()[id]; ok == named[id] {
			t.Errorf("%s: a case bears it: %v; why there is none: %q", id, named[id], why)
		}
	}
}
