package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
)

func ExampleNew() {
	c := lanes.DefaultConfig()
	c.Mode = gate.Enforce
	l, err := lanes.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	ctx := gate.WithFlow(context.Background(), "tenant-7", 1) // whoever identifies callers says so
	lease, err := l.Acquire(ctx, gate.Request{Cost: lanes.Price(lanes.Features{Bytes: 900, Messages: 3, Stream: true})})
	defer lease.Release() // harmless on the zero Lease
	if err != nil {
		fmt.Println(err)
		return
	}
	s := l.Snapshot()
	fmt.Println(s.InflightCost, "of", s.Limit)
	// Output: 5 of 64
}

func ExampleDefaultConfig() {
	c := lanes.DefaultConfig()
	fmt.Println(c.Mode, c.Algorithm, c.MinLimit, c.InitialLimit, c.MaxLimit, c.MaxWait)
	// Output: shadow gradient 8 64 1000 5s
}

// A limit that is out of range is an error that names its field.
func ExampleConfig_Validate() {
	c := lanes.DefaultConfig()
	c.MinLimit = 0
	fmt.Println(c.Validate())
	// Output: lanes: MinLimit is 0: want 1 to 1000000 (DefaultConfig has working values)
}

func ExamplePrice() {
	fmt.Println(lanes.Price(lanes.Features{Bytes: 500, Messages: 1}))                      // a small call
	fmt.Println(lanes.Price(lanes.Features{Bytes: 500, Messages: 1, Stream: true}))        // and as a stream
	fmt.Println(lanes.Price(lanes.Features{Bytes: 300 << 10, Messages: 40, Tokens: 4096})) // an agent's
	fmt.Println(lanes.Price(lanes.Features{Bytes: 1 << 40}))
	// Output:
	// 6
	// 5
	// 29
	// 1000
}

// What costs more than MaxLimit can never run, and is told so at once. What costs more
// than the limit is now runs alone.
func ExampleController_Acquire() {
	c := lanes.DefaultConfig()
	c.Mode = gate.Enforce
	l, _ := lanes.New(c)
	defer l.Close()

	_, err := l.Acquire(context.Background(), gate.Request{Cost: 1001})
	fmt.Println(errors.Is(err, gate.CostExceedsLimit))
	lease, err := l.Acquire(context.Background(), gate.Request{Cost: 1000})
	fmt.Println(l.Snapshot().InflightCost, err)
	lease.Release()
	// Output:
	// true
	// 64 <nil>
}

// A fan-out asks for all its targets at once.
func ExampleController_Probe() {
	c := lanes.DefaultConfig()
	c.Mode, c.VirtualLanes = gate.Enforce, true
	l, _ := lanes.New(c)
	defer l.Close()

	others, _ := l.Acquire(context.Background(), gate.Request{Flow: "others", Cost: 50})
	defer others.Release()
	ctx := context.Background()
	parent, _ := l.Acquire(ctx, gate.Request{Flow: "tenant-7", Cost: 6})
	defer parent.Release()
	ctx = parent.In(ctx, l) // an adapter does this

	// 8 of 64 are free, and the parent's own 6 do not count against its targets.
	fmt.Println(l.Probe(ctx, 6, 6, 6))
	fmt.Println(l.Snapshot().ProbeSkips, "skipped")
	// Output:
	// [true true false]
	// 1 skipped
}

// A fan-out that is left without a target is refused, with a time to come back.
func ExampleController_NoTarget() {
	c := lanes.DefaultConfig()
	c.Mode, c.VirtualLanes = gate.Enforce, true
	l, err := lanes.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	ctx := context.Background()
	lease, err := l.Acquire(ctx, gate.Request{Lane: "tenant-7", Cost: 64}) // all there is
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()

	costs := []int64{6, 12}
	ctx = gate.WithFlow(ctx, "tenant-8", 1)
	if !slices.Contains(l.Probe(ctx, costs...), true) {
		rej := l.NoTarget(ctx, costs...)
		fmt.Println(rej.Status(), rej.Reason, rej.RetryAfter > 0, l.Snapshot().ShedReasons)
	}
	// Output: 503 no_target true map[no_target:1]
}

func ExampleController_Reconfigure() {
	c := lanes.DefaultConfig()
	l, _ := lanes.New(c)
	defer l.Close()

	c.Mode = gate.Enforce
	fmt.Println(l.Reconfigure(c))
	c.Window = 0
	fmt.Println(l.Reconfigure(c))
	// Output:
	// <nil>
	// lanes: Window is 0s: want 10ms to 1h (DefaultConfig has working values)
}

// In shadow mode everything is admitted, and counted by what enforce would have done.
func ExampleController_Snapshot() {
	c := lanes.DefaultConfig()
	c.InitialLimit = 10
	l, _ := lanes.New(c)
	defer l.Close()
	for range 3 {
		lease, err := l.Acquire(context.Background(), gate.Request{Cost: 6})
		if err != nil {
			fmt.Println(err)
		}
		defer lease.Release()
	}
	s := l.Snapshot()
	fmt.Println(s.WouldAdmit, s.WouldQueue, s.WouldRefuse)
	// Output: 1 2 0
}

// Reports and refusals name lanes by ids. Whoever has the tenants finds theirs.
func ExampleController_LaneID() {
	c := lanes.DefaultConfig()
	c.Mode, c.VirtualLanes = gate.Enforce, true
	l, _ := lanes.New(c)
	defer l.Close()
	lease, _ := l.Acquire(context.Background(), gate.Request{Flow: "tenant-7", Cost: 1})
	defer lease.Release()

	lane := l.Snapshot().LaneTenants[0].Lane
	fmt.Println(lane == l.LaneID("tenant-7"), lane == "tenant-7")
	// Output: true false
}

func ExampleController_Close() {
	c := lanes.DefaultConfig()
	c.Mode = gate.Enforce
	l, _ := lanes.New(c)
	l.Close()
	_, err := l.Acquire(context.Background(), gate.Request{Cost: 1})
	fmt.Println(errors.Is(err, gate.ShuttingDown))
	fmt.Println(l.Drain(context.Background()))
	// Output:
	// true
	// <nil>
}

// Drain tells when the last lease is back, so that whoever uses them can go.
func ExampleController_Drain() {
	l, _ := lanes.New(lanes.DefaultConfig())
	lease, _ := l.Acquire(context.Background(), gate.Request{Cost: 1})
	l.Close()

	soon, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(l.Drain(soon))
	lease.Release()
	fmt.Println(l.Drain(context.Background()))
	// Output:
	// context deadline exceeded
	// <nil>
}

// A cost function prices what names no cost. What goes wrong in it costs the default.
func ExampleConfig() {
	c := lanes.DefaultConfig()
	c.Mode = gate.Enforce
	c.Cost = func(_ context.Context, r gate.Request) (int64, error) {
		if r.Route == "/embeddings" {
			return 1, nil
		}
		return 0, errors.New("no idea")
	}
	l, _ := lanes.New(c)
	defer l.Close()
	a, _ := l.Acquire(context.Background(), gate.Request{Route: "/embeddings", Bytes: 100})
	defer a.Release()
	b, _ := l.Acquire(context.Background(), gate.Request{Route: "/other", Bytes: 100})
	defer b.Release()
	fmt.Println(l.Snapshot().InflightCost, l.Snapshot().CostErrors)
	// Output: 7 1
}

func ExampleAlgorithm() {
	c := lanes.DefaultConfig()
	c.Mode = gate.Enforce
	c.Algorithm = lanes.Fixed
	l, _ := lanes.New(c)
	defer l.Close()
	lease, _ := l.Acquire(context.Background(), gate.Request{Cost: 1})
	lease.Release()
	fmt.Println(l.Snapshot().Algorithm, l.Snapshot().Limit)
	// Output: fixed 64
}
