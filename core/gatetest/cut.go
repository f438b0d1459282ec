package gatetest

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// CutBodies checks that an adapter's OnDecision also sees that a gate has cut a body that it had
// admitted, and that a gate inside which has not is silent (I7). app builds an app with the
// middleware over outer and, inside that, over inner; its handler reads the body to its end and
// refuses with the error of that. told is to be called with the Err of each Decision of either.
// The result sends a body of unknown length and returns the answer's status.
func CutBodies(t *testing.T, app func(outer, inner gate.Gate, told func(by gate.Gate, err error)) (send func(body io.Reader) (status int))) {
	t.Helper()
	c := admission.DefaultConfig()
	c.MaxInflightBytes, c.HardMaxBodyBytes = 8*mib, mib
	outer, err := admission.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after those of app: its server has ended
		if n := outer.Snapshot().InflightBytes; n != 0 {
			t.Errorf("%d bytes are held in the end", n)
		}
		outer.Close()
	})
	var mu sync.Mutex
	seen := map[gate.Gate][]error{}
	inner := &Slots{Limit: 1}
	send := app(outer, inner, func(by gate.Gate, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen[by] = append(seen[by], err)
	})
	for _, x := range []struct {
		size   int
		held   int64 // of the budget, by others
		status int
		want   []error
	}{
		{1 << 10, 0, http.StatusOK, []error{nil}},
		{2 * mib, 0, http.StatusRequestEntityTooLarge, []error{nil, gate.PayloadTooLarge}},
		{mib / 2, 8*mib - 128<<10, http.StatusServiceUnavailable, []error{nil, gate.AdmissionBusy}}, // no room to grow
	} {
		giveBack := hold(t, outer, x.held)
		if status := send(io.MultiReader(strings.NewReader(strings.Repeat("x", x.size)))); status != x.status {
			t.Errorf("%d bytes beside %d: answered %d, want %d", x.size, x.held, status, x.status)
		}
		giveBack()
		mu.Lock()
		if got := seen[outer]; !slices.EqualFunc(got, x.want, errors.Is) {
			t.Errorf("%d bytes beside %d: the hook saw %v, want %v", x.size, x.held, got, x.want)
		}
		if got := seen[inner]; len(got) != 1 || got[0] != nil {
			t.Errorf("%d bytes beside %d: the inner gate's hook saw %v, want its admission alone", x.size, x.held, got)
		}
		clear(seen)
		mu.Unlock()
	}
}

// hold takes n bytes of a budget, in pieces that it lets a body have, and returns how to
// give them back.
func hold(t *testing.T, b *admission.Budget, n int64) (giveBack func()) {
	t.Helper()
	var held []gate.Lease
	for ; n > 0; n -= mib {
		lease, err := b.Acquire(t.Context(), gate.Request{Bytes: min(n, mib)})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	return func() {
		for _, lease := range held {
			lease.Release()
		}
	}
}
