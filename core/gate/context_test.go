package gate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func want(t *testing.T, ctx context.Context, r, want gate.Request) {
	t.Helper()
	if got := r.In(ctx); got != want {
		t.Errorf("%+v.In\n got %+v\nwant %+v", r, got, want)
	}
}

func TestRequestIn(t *testing.T) {
	bg := context.Background()
	bulk := gate.WithClass(bg, gate.Bulk)
	acme := gate.WithFlow(bulk, "acme", 7)
	asked := gate.Request{Class: gate.Interactive, Flow: "own", Weight: 3}
	for _, c := range []struct {
		name    string
		ctx     context.Context
		r, want gate.Request
	}{
		{"bare context", bg, gate.Request{}, gate.Request{Class: gate.Default, Weight: 1}},
		{"class", bulk, gate.Request{}, gate.Request{Class: gate.Bulk, Weight: 1}},
		{"class and flow", acme, gate.Request{}, gate.Request{Class: gate.Bulk, Flow: "acme", Weight: 7}},
		{"explicit fields win", acme, asked, asked},
		{"explicit fields, bare context", bg, asked, asked},
		{"only the class is explicit", acme, gate.Request{Class: gate.Interactive},
			gate.Request{Class: gate.Interactive, Flow: "acme", Weight: 7}},
		{"only the flow is explicit", acme, gate.Request{Flow: "own"},
			gate.Request{Class: gate.Bulk, Flow: "own", Weight: 1}},
		{"the explicit flow is the context's", acme, gate.Request{Flow: "acme"},
			gate.Request{Class: gate.Bulk, Flow: "acme", Weight: 7}},
		{"only the weight is explicit", acme, gate.Request{Weight: 3},
			gate.Request{Class: gate.Bulk, Flow: "acme", Weight: 3}},
		{"weight 0 counts as 1", gate.WithFlow(acme, "b", 0), gate.Request{},
			gate.Request{Class: gate.Bulk, Flow: "b", Weight: 1}},
		{"an empty flow ends the flow around it", gate.WithFlow(acme, "", 0), gate.Request{},
			gate.Request{Class: gate.Bulk, Weight: 1}},
		{"class zero ends the class around it", gate.WithClass(acme, 0), gate.Request{},
			gate.Request{Class: gate.Default, Flow: "acme", Weight: 7}},
		{"the other fields stay", acme,
			gate.Request{Lane: "l", Cost: 4, Bytes: -1, Buffered: 2, Method: "PUT", Route: "/r", Path: "/p", ContentType: "c"},
			gate.Request{Lane: "l", Cost: 4, Bytes: -1, Buffered: 2, Method: "PUT", Route: "/r", Path: "/p", ContentType: "c",
				Class: gate.Bulk, Flow: "acme", Weight: 7}},
	} {
		t.Run(c.name, func(t *testing.T) { want(t, c.ctx, c.r, c.want) })
	}
}

// Each open field is filled whatever the others are.
func TestRequestInFillsEachField(t *testing.T) {
	ctx := gate.WithFlow(gate.WithClass(context.Background(), gate.Bulk), "acme", 7)
	for set := range 8 {
		var r gate.Request
		exp := gate.Request{Class: gate.Bulk, Flow: "acme", Weight: 7}
		if set&1 != 0 {
			r.Class, exp.Class = gate.Interactive, gate.Interactive
		}
		if set&2 != 0 {
			r.Flow, exp.Flow, exp.Weight = "own", "own", 1 // the weight is that of another flow
		}
		if set&4 != 0 {
			r.Weight, exp.Weight = 3, 3
		}
		want(t, ctx, r, exp)
	}
}

type otherKey struct{}

// A scope reaches everything below it, through contexts of other packages, and
// nothing beside or above it.
func TestScopes(t *testing.T) {
	outer := gate.WithFlow(gate.WithClass(context.Background(), gate.Bulk), "a", 2)
	mid, cancel := context.WithCancel(context.WithValue(outer, otherKey{}, "v"))
	defer cancel()
	inner := gate.WithClass(mid, gate.Interactive)
	sibling := gate.WithFlow(mid, "b", 3)

	bulkA := gate.Request{Class: gate.Bulk, Flow: "a", Weight: 2}
	want(t, outer, gate.Request{}, bulkA)
	want(t, mid, gate.Request{}, bulkA)
	want(t, context.WithoutCancel(mid), gate.Request{}, bulkA)
	want(t, inner, gate.Request{}, gate.Request{Class: gate.Interactive, Flow: "a", Weight: 2})
	want(t, sibling, gate.Request{}, gate.Request{Class: gate.Bulk, Flow: "b", Weight: 3})
	if v := inner.Value(otherKey{}); v != "v" {
		t.Errorf("a value of another package below a scope = %v", v)
	}
	if v := inner.Value([]int{1}); v != nil {
		t.Errorf("an incomparable key = %v, want nil", v)
	}
	done := make(chan gate.Request)
	go func() { done <- gate.Request{}.In(inner) }()
	if r := <-done; r.Class != gate.Interactive || r.Flow != "a" {
		t.Errorf("in a goroutine: %+v", r)
	}
}

func TestScopePanics(t *testing.T) {
	bg := context.Background()
	for name, f := range map[string]func(){
		"class 4":     func() { gate.WithClass(bg, 4) },
		"class 255":   func() { gate.WithClass(bg, 255) },
		"weight -1":   func() { gate.WithFlow(bg, "secret-flow", -1) },
		"weight 1001": func() { gate.WithFlow(bg, "secret-flow", 1001) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				msg, ok := recover().(string)
				if !ok || !strings.HasPrefix(msg, "gate.With") || strings.Contains(msg, "secret") {
					t.Errorf("panic %q, want one that names the function and not the flow", msg)
				}
			}()
			f()
			t.Error("no panic")
		})
	}
	for _, w := range []int{0, 1, 1000} {
		if got := (gate.Request{}).In(gate.WithFlow(bg, "f", w)).Weight; got != max(w, 1) {
			t.Errorf("weight %d reads %d", w, got)
		}
	}
}

// foreign hides its parent's cancellation behind a channel of its own, which
// makes package context start a goroutine for each child.
type foreign struct {
	context.Context
	done chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

// started returns how many goroutines 100 cancelable children of ctx start.
func started(ctx context.Context) int {
	before := runtime.NumGoroutine()
	cancels := make([]context.CancelFunc, 0, 100)
	for range cap(cancels) {
		_, cancel := context.WithCancel(ctx)
		cancels = append(cancels, cancel)
	}
	n := runtime.NumGoroutine() - before
	for _, cancel := range cancels {
		cancel()
	}
	return n
}

func TestCancelPassesScopesWithoutGoroutine(t *testing.T) {
	top, cancel := context.WithCancelCause(context.Background())
	g := &fake{}
	ctx := g.lease().In(gate.WithFlow(gate.WithClass(top, gate.Bulk), "f", 1), g)
	// Goroutines of earlier tests may end meanwhile: hence the slack.
	if n := started(ctx); n > 10 {
		t.Errorf("100 children below a scope started %d goroutines", n)
	}
	if n := started(foreign{ctx, make(chan struct{})}); n < 90 {
		t.Errorf("100 children below a foreign context started %d goroutines: this test cannot fail", n)
	}

	child, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	cause := errors.New("gone")
	cancel(cause)
	for _, c := range []context.Context{ctx, child} {
		select { // without an own goroutine the news is there at once
		case <-c.Done():
		default:
			t.Fatal("not canceled with its parent")
		}
		if c.Err() != context.Canceled || context.Cause(c) != cause {
			t.Errorf("Err %v, Cause %v", c.Err(), context.Cause(c))
		}
	}
}

func TestDeadlinesPassScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		top, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		mid := gate.WithClass(top, gate.Interactive)
		low, stopLow := context.WithTimeout(gate.WithFlow(mid, "f", 1), time.Second)
		defer stopLow()
		leaf := gate.WithClass(low, gate.Bulk)
		if d, ok := leaf.Deadline(); !ok || !d.Equal(start.Add(time.Second)) {
			t.Errorf("Deadline() = %v, %t", d, ok)
		}
		<-leaf.Done()
		if since := time.Since(start); since != time.Second || leaf.Err() != context.DeadlineExceeded {
			t.Errorf("ended after %v with %v", since, leaf.Err())
		}
		if mid.Err() != nil {
			t.Errorf("a child's timeout ended its parent: %v", mid.Err())
		}
		<-mid.Done()
		if since := time.Since(start); since != time.Minute {
			t.Errorf("the parent ended after %v", since)
		}
	})
}

var sinkCtx context.Context

func TestAllocations(t *testing.T) {
	g := &fake{}
	l := g.lease()
	top, cancel := context.WithCancel(context.WithValue(context.Background(), otherKey{}, 1))
	defer cancel()
	ctx := l.In(gate.WithFlow(gate.WithClass(top, gate.Bulk), "f", 9), g)
	below, stop := context.WithCancel(ctx)
	defer stop()
	other := &fake{}
	for _, c := range []struct {
		name string
		want float64
		f    func()
	}{
		{"WithClass", 1, func() { sinkCtx = gate.WithClass(top, gate.Bulk) }},
		{"WithClass below a scope", 1, func() { sinkCtx = gate.WithClass(below, gate.Interactive) }},
		{"WithFlow", 1, func() { sinkCtx = gate.WithFlow(top, "f", 2) }},
		{"Lease.In", 1, func() { sinkCtx = l.In(below, g) }},
		{"Request.In", 0, func() { _ = gate.Request{}.In(below) }},
		{"LeaseOf, found", 0, func() { gate.LeaseOf(below, g) }},
		{"LeaseOf, missing", 0, func() { gate.LeaseOf(below, other) }},
		{"Observe", 0, func() { gate.Observe(top, gate.Sample{}) }},
		{"zero lease", 0, func() { var l gate.Lease; l.Release() }},
	} {
		if got := testing.AllocsPerRun(100, c.f); got != c.want {
			t.Errorf("%s allocates %v times, want %v", c.name, got, c.want)
		}
	}
}

func TestPrintedContextHidesTheFlow(t *testing.T) {
	g := &fake{}
	ctx := g.lease().In(gate.WithFlow(gate.WithClass(context.Background(), gate.Bulk), "acme-corp", 3), g)
	sub, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, c := range []context.Context{ctx, sub, gate.WithClass(foreign{ctx, nil}, gate.Bulk)} {
		for _, verb := range []string{"%v", "%+v", "%s"} {
			if s := fmt.Sprintf(verb, c); strings.Contains(s, "acme") || !strings.Contains(s, ".gate") {
				t.Errorf("%s prints %q", verb, s)
			}
		}
	}
}

// A ticket is inherited by everything below it, beside class, flow and leases, and an
// inner one hides it.
func TestTickets(t *testing.T) {
	if class, ticket := gate.Inherited(context.Background()); class != 0 || ticket != nil {
		t.Errorf("a bare context has %v, %v", class, ticket)
	}
	outer := gate.WithTicket(context.Background(), "outer")
	below := gate.WithFlow(gate.WithClass(outer, gate.Bulk), "flow", 7)
	if class, ticket := gate.Inherited(below); class != gate.Bulk || ticket != "outer" {
		t.Errorf("below it there is %v, %v", class, ticket)
	}
	inner := gate.WithTicket(below, "inner")
	r := gate.Request{}.In(inner)
	if class, ticket := gate.Inherited(inner); class != gate.Bulk || ticket != "inner" || r.Flow != "flow" || r.Weight != 7 {
		t.Errorf("inside there is %v, %v, flow %q of weight %d", class, ticket, r.Flow, r.Weight)
	}
	if _, ticket := gate.Inherited(below); ticket != "outer" {
		t.Errorf("outside there is %v", ticket)
	}
	for want, ctx := range map[gate.Class]context.Context{gate.Default: outer, gate.Bulk: below} {
		if got := gate.ClassOf(ctx); got != want {
			t.Errorf("ClassOf = %v, want %v", got, want)
		}
	}
}

// FlowOf is what a request takes over, and nothing where there is nothing.
func TestFlowOf(t *testing.T) {
	ctx := context.Background()
	if flow, weight := gate.FlowOf(ctx); flow != "" || weight != 0 {
		t.Errorf("%q of weight %d in an empty context", flow, weight)
	}
	ctx = gate.WithClass(gate.WithFlow(ctx, "tenant-7", 3), gate.Bulk)
	in := gate.Request{}.In(ctx)
	if flow, weight := gate.FlowOf(ctx); flow != "tenant-7" || weight != 3 || flow != in.Flow || weight != in.Weight {
		t.Errorf("%q of weight %d, a request has %+v", flow, weight, in)
	}
}
