package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// An adapter puts each request to its gate with Admit: a request that comes back
// is admitted once.
func ExampleAdmit() {
	t := &turnstile{}
	r := gate.Request{}
	ctx, lease, asked, err := gate.Admit(context.Background(), t, &r, "192.0.2.7:1234")
	defer lease.Release()
	fmt.Println(asked, err, r.Flow, r.Class, r.Weight)

	_, _, asked, err = gate.Admit(ctx, t, &gate.Request{}, "192.0.2.7:1234")
	fmt.Println(asked, err)
	// Output:
	// true <nil> 192.0.2.7 default 1
	// false <nil>
}

// The flow is the request's own, else the context's, else the peer's.
func TestAdmitCompletesTheRequest(t *testing.T) {
	tenant := gate.WithFlow(gate.WithClass(context.Background(), gate.Bulk), "tenant", 7)
	for _, c := range []struct {
		ctx  context.Context
		r    gate.Request
		peer string
		want gate.Request
	}{
		{context.Background(), gate.Request{}, "", gate.Request{Class: gate.Default, Weight: 1}},
		{context.Background(), gate.Request{}, "[2001:db8::1]:80", gate.Request{Class: gate.Default, Flow: "2001:db8::/64", Weight: 1}},
		{tenant, gate.Request{}, "192.0.2.7:1", gate.Request{Class: gate.Bulk, Flow: "tenant", Weight: 7}},
		{tenant, gate.Request{Flow: "own"}, "192.0.2.7:1", gate.Request{Class: gate.Bulk, Flow: "own", Weight: 1}},
	} {
		g := &fake{}
		ctx, lease, asked, err := gate.Admit(c.ctx, g, &c.r, c.peer)
		if got, held := gate.LeaseOf(ctx, g); err != nil || !asked || !held || got != lease {
			t.Errorf("asked %t, error %v, the lease in the context %v", asked, err, got)
		}
		if c.r != c.want {
			t.Errorf("asked for %+v, want %+v", c.r, c.want)
		}
	}
}

// After an error, and for a lease that is held, nothing is new.
func TestAdmitNothing(t *testing.T) {
	g := &fake{}
	ctx, lease, _, err := gate.Admit(context.Background(), g, &gate.Request{}, "")
	if err != nil {
		t.Fatal(err)
	}
	untouched := gate.Request{}
	again, none, asked, err := gate.Admit(ctx, g, &untouched, "peer:1")
	if again != ctx || none != (gate.Lease{}) || asked || err != nil || untouched != (gate.Request{}) {
		t.Errorf("a held lease: %v, asked %t, error %v, %+v", none, asked, err, untouched)
	}
	other, none, asked, err := gate.Admit(context.Background(), g, &gate.Request{}, "")
	if other != context.Background() || none != (gate.Lease{}) || !asked || !errors.Is(err, gate.QueueFull) {
		t.Errorf("a full gate: %v, asked %t, error %v", none, asked, err)
	}
	lease.Release()
	if _, _, asked, err = gate.Admit(ctx, g, &gate.Request{}, ""); !asked || err != nil {
		t.Errorf("after the release: asked %t, error %v", asked, err)
	}
}
