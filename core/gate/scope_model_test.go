package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

func TestLeaseOfIsPerGate(t *testing.T) {
	a, b := &fake{}, &fake{}
	la := a.lease()
	ctx := la.In(context.Background(), a)
	if got, ok := gate.LeaseOf(ctx, a); !ok || got != la {
		t.Errorf("LeaseOf(a) = %v, %t", got, ok)
	}
	for name, g := range map[string]gate.Gate{"b": b, "nil": nil} {
		if got, ok := gate.LeaseOf(ctx, g); ok || got != (gate.Lease{}) {
			t.Errorf("LeaseOf(%s) = %v, %t, want none", name, got, ok)
		}
	}
	if _, ok := gate.LeaseOf(context.Background(), a); ok {
		t.Error("a bare context has a lease")
	}
	lb := b.lease()
	both := lb.In(gate.WithClass(ctx, gate.Bulk), b)
	if got, ok := gate.LeaseOf(both, a); !ok || got != la {
		t.Errorf("LeaseOf(a) below b = %v, %t", got, ok)
	}
	if got, ok := gate.LeaseOf(both, b); !ok || got != lb {
		t.Errorf("LeaseOf(b) below a = %v, %t", got, ok)
	}
	lb.Release()
	if _, ok := gate.LeaseOf(both, b); ok {
		t.Error("a released lease was found")
	}
	if _, ok := gate.LeaseOf(both, a); !ok {
		t.Error("releasing b hid a")
	}
}

// many is a gate with a holder for each lease.
type many struct{ fake }

// The innermost living lease of the gate is the one that counts.
func TestLeaseOfNested(t *testing.T) {
	g := &many{}
	outer, inner := (&fake{}).lease(), (&fake{}).lease()
	ctx := inner.In(gate.WithFlow(outer.In(context.Background(), g), "f", 1), g)
	if got, ok := gate.LeaseOf(ctx, g); !ok || got != inner {
		t.Errorf("LeaseOf = %v, %t, want the inner lease", got, ok)
	}
	inner.Release()
	if got, ok := gate.LeaseOf(ctx, g); !ok || got != outer {
		t.Errorf("LeaseOf = %v, %t, want the outer lease, which still lives", got, ok)
	}
	outer.Release()
	if _, ok := gate.LeaseOf(ctx, g); ok {
		t.Error("found a lease after both were released")
	}
}

func TestObserve(t *testing.T) {
	gate.Observe(context.Background(), gate.Sample{Status: 200}) // no leases: nothing

	holders := []*fake{{}, {}, {}}
	ctx := context.Background()
	leases := make([]gate.Lease, len(holders))
	for i, h := range holders {
		leases[i] = h.lease()
		ctx = gate.WithClass(leases[i].In(ctx, h), gate.Bulk)
	}
	leases[1].Release()
	s := gate.Sample{FirstByte: 5, Status: 503, Err: context.DeadlineExceeded}
	gate.Observe(ctx, s)
	for i, want := range [][]gate.Sample{{s}, nil, {s}} {
		if got := holders[i].seen(); !reflect.DeepEqual(got, want) {
			t.Errorf("lease %d saw %v, want %v", i, got, want)
		}
	}
}

// node is the model of one context: everything spelled out, nothing shared.
type node struct {
	ctx    context.Context
	class  gate.Class
	flow   string
	weight int
	held   []held // outermost first
}

type held struct {
	gate  *fake // which LeaseOf asks for
	owner *fake
	lease gate.Lease
}

func (n node) lease(g *fake) (gate.Lease, bool) {
	for i := len(n.held) - 1; i >= 0; i-- {
		if h := n.held[i]; h.gate == g && h.lease.Live() {
			return h.lease, true
		}
	}
	return gate.Lease{}, false
}

// grow returns a child of n, made by a random step.
func (n node) grow(r *rand.Rand, gates []*fake) node {
	n.held = append([]held(nil), n.held...)
	switch r.IntN(6) {
	case 0:
		n.class = gate.Class(r.IntN(4))
		n.ctx = gate.WithClass(n.ctx, n.class)
	case 1:
		n.flow, n.weight = fmt.Sprint("f", r.IntN(5)), r.IntN(1001)
		n.ctx = gate.WithFlow(n.ctx, n.flow, n.weight)
	case 2, 3:
		owner := &fake{}
		h := held{gates[r.IntN(len(gates))], owner, owner.lease()}
		n.held = append(n.held, h)
		n.ctx = h.lease.In(n.ctx, h.gate)
	case 4:
		n.ctx = context.WithValue(n.ctx, otherKey{}, r.Int())
	case 5:
		n.ctx = context.WithoutCancel(n.ctx)
	}
	return n
}

// Random trees of scopes answer like the model, whatever was released.
func TestScopesAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		gates := []*fake{{}, {}, {}}
		nodes := []node{{ctx: context.Background()}}
		for range 60 {
			nodes = append(nodes, nodes[r.IntN(len(nodes))].grow(r, gates))
			if n := nodes[r.IntN(len(nodes))]; len(n.held) > 0 && r.IntN(3) == 0 {
				n.held[r.IntN(len(n.held))].lease.Release()
			}
		}
		for i, n := range nodes {
			checkNode(t, fmt.Sprintf("seed %d node %d", seed, i), n, gates)
		}
		if t.Failed() {
			return
		}
	}
}

func checkNode(t *testing.T, name string, n node, gates []*fake) {
	t.Helper()
	exp := gate.Request{Class: n.class, Flow: n.flow, Weight: max(n.weight, 1)}
	if exp.Class == 0 {
		exp.Class = gate.Default
	}
	if got := (gate.Request{}).In(n.ctx); got != exp {
		t.Errorf("%s: In = %+v, want %+v", name, got, exp)
	}
	for _, g := range gates {
		got, ok := gate.LeaseOf(n.ctx, g)
		if exp, expOK := n.lease(g); got != exp || ok != expOK {
			t.Errorf("%s: LeaseOf = %v, %t, want %v, %t", name, got, ok, exp, expOK)
		}
	}
	before := make([]int, len(n.held))
	for i, h := range n.held {
		before[i] = len(h.owner.seen())
	}
	gate.Observe(n.ctx, gate.Sample{Status: 200})
	for i, h := range n.held {
		more := 0
		if h.lease.Live() {
			more = 1
		}
		if got := len(h.owner.seen()) - before[i]; got != more {
			t.Errorf("%s: lease %d saw %d samples, want %d", name, i, got, more)
		}
	}
}
