package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func plan(t *testing.T, args ...string) []call {
	t.Helper()
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	chosen, err := find(o.scenario, o.trace != "")
	require.NoError(t, err)
	s, err := prepare(o, chosen[0])
	require.NoError(t, err)
	return s.calls
}

func TestTheSameSeedIsTheSameLoad(t *testing.T) {
	seven := plan(t, "-seed", "7")
	assert.Equal(t, seven, plan(t, "-seed", "7"))
	assert.NotEqual(t, seven, plan(t, "-seed", "8"))
}

func TestBodiesHasABurst(t *testing.T) {
	calls := plan(t, "-duration", "5s")
	at := map[time.Duration]map[int64]int{}
	huge := 0
	for _, c := range calls {
		assert.Less(t, c.at, 5*time.Second)
		assert.Positive(t, c.hold)
		if at[c.at] == nil {
			at[c.at] = map[int64]int{}
		}
		at[c.at][c.size]++
		if c.size == bodiesHuge {
			huge++
		}
	}
	assert.Equal(t, 200, at[time.Second][2<<20])
	assert.Equal(t, 4, at[time.Second][bodiesHuge])
	assert.Equal(t, 6, huge)
	assert.Len(t, calls, 5*bodiesRate+200+6)
}

func TestBodiesAndDigests(t *testing.T) {
	p := newPool(3)
	calls := []call{{at: 3, size: 0}, {at: 2, size: 1}, {at: 1, size: poolSize}, {at: 0, size: 2*poolSize + 5}}
	again := slices.Clone(calls)
	p.complete(rand.New(rand.NewPCG(1, 2)), calls)
	newPool(3).complete(rand.New(rand.NewPCG(1, 2)), again)
	assert.Equal(t, calls, again, "the same seed is the same load")
	assert.Equal(t, int64(2*poolSize+5), calls[0].size, "in the order of their time")
	for _, c := range calls {
		for range 2 { // each reader begins anew
			body, err := io.ReadAll(p.body(c))
			require.NoError(t, err)
			assert.Len(t, body, int(c.size))
			sum := sha256.Sum256(body)
			assert.Equal(t, hex.EncodeToString(sum[:]), c.sum)
		}
	}
	assert.NotEqual(t, newPool(3)[:32], newPool(4)[:32])
}
