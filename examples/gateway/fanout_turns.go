package main

import (
	"container/list"
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"sync"
)

// maxTurns is how many lists of targets have turns that are remembered.
const maxTurns = 1024

// turns knows whose turn it is, for each tenant and each list of targets by themselves: what
// others ask for moves no turn of one's own. The zero value is ready for use.
//
// Clients make lists, so only those that were used last are remembered, maxTurns of them.
// Once there are more, one that is not remembered begins anywhere: where that goes on and
// on, each call begins at random, which is as even, and in no order.
type turns struct {
	mu   sync.Mutex
	seed maphash.Seed // so that nobody can choose two lists that look alike
	at   map[uint64]*list.Element
	used list.List // of *turn, that of the latest call first
}

type turn struct{ list, next uint64 }

// next returns the index of the target that the next call begins with, and moves on.
func (t *turns) next(flow string, targets []string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at == nil {
		t.at, t.seed = make(map[uint64]*list.Element), maphash.MakeSeed()
	}
	key, n := t.hashLocked(flow, targets), uint64(len(targets))
	e := t.at[key]
	switch {
	case e != nil:
		t.used.MoveToFront(e)
	case t.used.Len() < maxTurns:
		e = t.used.PushFront(&turn{list: key})
	default:
		e = t.used.Back()
		delete(t.at, e.Value.(*turn).list)
		*e.Value.(*turn) = turn{list: key, next: rand.Uint64N(n)}
		t.used.MoveToFront(e)
	}
	t.at[key] = e
	now := e.Value.(*turn)
	first := now.next % n
	now.next = first + 1
	return int(first)
}

func (t *turns) hashLocked(flow string, targets []string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	add := func(s string) { // with its length, so that no two lists look alike
		var length [8]byte
		binary.LittleEndian.PutUint64(length[:], uint64(len(s)))
		_, _ = h.Write(length[:])
		_, _ = h.WriteString(s)
	}
	add(flow)
	for _, s := range targets {
		add(s)
	}
	return h.Sum64()
}
