package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each list of targets has its own turns, and each tenant: however the calls are mixed, each
// gets its targets one after another.
func TestTurnsOfEachList(t *testing.T) {
	var turns turns
	lists := [][]string{{"a", "b"}, {"b", "a"}, {"a", "b", "c"}, {"ab"}, {"a", "b", ""}, {"abc", "d"}}
	for call := range 60 {
		for i, list := range lists {
			for _, flow := range []string{"", "alice", "bob"} {
				if flow == "alice" && call%(i+1) > 0 { // who calls at every other call only
					continue
				}
				want := call
				if flow == "alice" {
					want = call / (i + 1)
				}
				assert.Equal(t, want%len(list), turns.next(flow, list), "%v of %q", list, flow)
			}
		}
	}
}

// Of more lists than are remembered the last ones are, and no more memory is taken; every
// list stays even, none of its targets is begun with much more often than another.
func TestTurnsOfManyLists(t *testing.T) {
	var turns turns
	invent := func(from, to int) {
		for i := from; i < to; i++ {
			turns.next("", []string{fmt.Sprint("invented-", i), "x"})
		}
	}
	mine := []string{"a", "b", "c"}
	for call := range 100 { // it is used now and then, so it is remembered
		assert.Equal(t, call%3, turns.next("", mine))
		invent(call*1000, call*1000+1000)
	}
	assert.Len(t, turns.at, maxTurns)
	assert.Equal(t, maxTurns, turns.used.Len())

	begun := map[int]int{}
	for call := range 600 { // and now it never is
		begun[turns.next("", mine)]++
		invent(call*1100, call*1100+1100)
	}
	for target := range mine {
		assert.InDelta(t, 200, begun[target], 70, "%v", begun) // six standard deviations
	}
	assert.Len(t, turns.at, maxTurns)
}
