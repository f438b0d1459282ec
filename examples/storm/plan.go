package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// call is one request of a plan.
type call struct {
	at   time.Duration // when it is sent, from the start
	hold time.Duration // how long the app keeps it after reading
	size int64         // bytes of its body
	rate int64         // bytes per second at which the body is there to send, 0 = at once

	kind    kind
	prompts int    // of a panel
	key     string // that a chat or one of a flood presents, "" = that of people

	from int    // where in the pool its body begins
	sum  string // SHA-256 of its body, in hex
}

// pool is what all bodies are cut from: random bytes, so that a wrong body has a
// wrong digest, but in memory only once.
type pool []byte

const poolSize = 4 << 20

func newPool(seed uint64) pool {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	p := make(pool, poolSize)
	_, _ = rand.NewChaCha8(key).Read(p) // never fails
	return p
}

// body returns the body of c. Each call returns a new reader at its beginning.
func (p pool) body(c call) io.Reader {
	return io.LimitReader(&cycle{p: p, at: c.from}, c.size)
}

// cycle reads a pool round and round.
type cycle struct {
	p  pool
	at int
}

func (c *cycle) Read(b []byte) (int, error) {
	n := copy(b, c.p[c.at:])
	c.at = (c.at + n) % len(c.p)
	return n, nil
}

// complete sorts calls by time and gives each its body and digest. Digests are made
// before the storm, so that they take no time from it.
func (p pool) complete(r *rand.Rand, calls []call) {
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	for i := range calls {
		calls[i].from = r.IntN(len(p))
	}
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(calls); i += workers {
				h := sha256.New()
				_, _ = io.Copy(h, p.body(calls[i])) // neither side fails
				calls[i].sum = hex.EncodeToString(h.Sum(nil))
			}
		})
	}
	wg.Wait()
}
