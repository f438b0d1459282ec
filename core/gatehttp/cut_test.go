package gatehttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// capped is a gate whose bodies end with its refusal after so many bytes, -1 = never.
type capped struct {
	one
	most int
}

func (g *capped) Body(_ uint64, rc io.ReadCloser, _ func(time.Time) error) io.ReadCloser {
	if g.most < 0 {
		return rc
	}
	return &short{rc, g.most}
}

type short struct {
	io.ReadCloser
	left int
}

func (b *short) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, refusal(gate.PayloadTooLarge)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// The gate that cuts a body says so, and no other around it or inside.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		name         string
		outer, inner int
		by           string
	}{
		{"nobody", 100, 100, ""},
		{"the outer", 2, 100, "outer"},
		{"the inner", 100, 2, "inner"},
		{"the outer, the inner has no reader", 2, -1, "outer"},
		{"the inner, the outer has no reader", -1, 2, "inner"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			outer, inner := &capped{most: c.outer}, &capped{most: c.inner}
			outer.one.lease, inner.one.lease = outer, inner
			a := ask(t, w, post("body"), outer)
			b := ask(t, w, a.Enter(gate.Problem), inner)
			_, err := io.ReadAll(b.Enter(gate.Problem).Body)
			b.Leave()
			a.Leave()
			by := ""
			for name, got := range map[string]error{"outer": a.Cut(), "inner": b.Cut()} {
				if got != nil {
					by += name
					if !errors.Is(got, gate.PayloadTooLarge) || !errors.Is(err, got) {
						t.Errorf("%s: %v, the reader had %v", name, got, err)
					}
				}
			}
			if by != c.by || (err == nil) != (by == "") {
				t.Errorf("cut by %q, read to %v", by, err)
			}
		})
	}
}

// So it is with a middleware between the two that replaces the body, as those that limit
// or unpack bodies do.
func TestCutBehindAnotherBody(t *testing.T) {
	for by, most := range map[string][2]int{"": {100, 100}, "outer": {2, 100}, "inner": {100, 2}} {
		w := httptest.NewRecorder()
		outer, inner := &capped{most: most[0]}, &capped{most: most[1]}
		outer.one.lease, inner.one.lease = outer, inner
		a := ask(t, w, post("body"), outer)
		r := a.Enter(gate.Problem)
		r.Body = http.MaxBytesReader(w, r.Body, 1000)
		b := ask(t, w, r, inner)
		_, err := io.ReadAll(b.Enter(gate.Problem).Body)
		b.Leave()
		a.Leave()
		if got := map[string]bool{"outer": a.Cut() != nil, "inner": b.Cut() != nil}; got["outer"] != (by == "outer") || got["inner"] != (by == "inner") {
			t.Errorf("cut by %q, told by %v, read to %v", by, got, err)
		}
	}
}

func TestCutOfNothing(t *testing.T) {
	var none gatehttp.Admission
	if none.Cut() != nil {
		t.Error("nothing was cut")
	}
}
