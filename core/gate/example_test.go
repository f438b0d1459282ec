package gate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// A class holds for everything that is done with the context, goroutines
// included, until a deeper scope says otherwise.
func ExampleWithClass() {
	nightly := gate.WithClass(context.Background(), gate.Bulk)
	preview := gate.WithClass(nightly, gate.Interactive)

	done := make(chan gate.Class)
	go func() { done <- gate.Request{}.In(nightly).Class }()
	fmt.Println(<-done)
	fmt.Println(gate.Request{}.In(preview).Class)
	fmt.Println(gate.Request{}.In(context.Background()).Class)
	// Output:
	// bulk
	// interactive
	// default
}

// Work that says nothing of its class has the one in the middle.
func ExampleClassOf() {
	ctx := context.Background()
	fmt.Println(gate.ClassOf(ctx))
	fmt.Println(gate.ClassOf(gate.WithClass(ctx, gate.Bulk)))
	// Output:
	// default
	// bulk
}

func ExampleWithFlow() {
	ctx := gate.WithFlow(context.Background(), "tenant-7", 3)

	r := gate.Request{}.In(ctx)
	fmt.Println(r.Flow, r.Weight)
	// Output: tenant-7 3
}

func ExampleParseClass() {
	for _, header := range []string{"bulk", "BULK"} {
		class, err := gate.ParseClass(header)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(class)
	}
	// Output:
	// bulk
	// class "BULK": want interactive, default or bulk
}

// What a request says itself wins; the context fills in the rest.
func ExampleRequest_In() {
	ctx := gate.WithClass(context.Background(), gate.Bulk)
	ctx = gate.WithFlow(ctx, "tenant-7", 2)

	open := gate.Request{Cost: 5}.In(ctx)
	fmt.Println(open.Class, open.Flow, open.Weight, open.Cost)

	fixed := gate.Request{Class: gate.Interactive, Flow: "admin", Weight: 1}.In(ctx)
	fmt.Println(fixed.Class, fixed.Flow, fixed.Weight, fixed.Cost)
	// Output:
	// bulk tenant-7 2 5
	// interactive admin 1 0
}

func ExampleRejection() {
	call := func() error { // what a client library makes of a refusal
		return fmt.Errorf("post chat: %w", &gate.Rejection{
			Reason: gate.QueueTimeout, Gate: "inflight", Lane: "api.example|large", Class: gate.Bulk,
			Waited: 300 * time.Second, Position: 14, Limit: 6, RetryAfter: 12300 * time.Millisecond,
			Advice: "raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane",
		})
	}

	err := call()
	fmt.Println(errors.Is(err, gate.QueueTimeout), errors.Is(err, gate.QueueFull))

	var refused *gate.Rejection
	if errors.As(err, &refused) {
		fmt.Println(refused.Status(), refused.RetryAfterSeconds(), refused.Timeout())
		fmt.Println(refused)
	}
	// Output:
	// true false
	// 503 13 true
	// refused locally by inflight: lane "api.example|large": queue timeout after 300.0s at position 14 (class bulk, limit 6): raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane
}

func ExampleRejection_Render() {
	r := &gate.Rejection{Reason: gate.PayloadTooLarge, Gate: "admission", Limit: 1 << 20, Unit: "bytes"}
	for _, f := range []gate.Format{gate.Problem, gate.OpenAI} {
		body, contentType := r.Render(f)
		fmt.Println(contentType)
		fmt.Println(string(body))
	}
	// Output:
	// application/problem+json
	// {"code":"payload_too_large","detail":"refused locally by admission: payload too large (limit 1048576 bytes)","gate":"admission","limit":1048576,"status":413,"title":"Content Too Large","type":"about:blank"}
	// application/json
	// {"error":{"code":"payload_too_large","message":"refused locally by admission: payload too large (limit 1048576 bytes)","param":null,"type":"invalid_request_error"}}
}

func ExampleSize() {
	var s gate.Size
	for _, text := range []string{"64MiB", "65536", "2GB", "1.5GiB"} {
		if err := s.UnmarshalText([]byte(text)); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(int64(s), s)
	}
	// Output:
	// 67108864 64MiB
	// 65536 64KiB
	// 2000000000 1953125KiB
	// size "1.5GiB": want a whole number of bytes, or one with a unit such as 64MiB
}

func ExamplePeerFlow() {
	for _, addr := range []string{
		"192.0.2.1:52144",
		"[2001:db8::1]:52144",
		"[2001:db8::2]:52145", // of the same /64
		"[::ffff:192.0.2.1]:80",
		"@", // a Unix socket
	} {
		fmt.Println(gate.PeerFlow(addr))
	}
	// Output:
	// 192.0.2.1
	// 2001:db8::/64
	// 2001:db8::/64
	// 192.0.2.1
	// @
}

func ExampleHashFlow() {
	secret := []byte("32 random bytes, made at startup") // from crypto/rand

	alice := gate.HashFlow(secret, "Bearer alice-key")
	bob := gate.HashFlow(secret, "Bearer bob-key")
	fmt.Println(len(alice), alice == bob, alice == gate.HashFlow(secret, "Bearer alice-key"))
	fmt.Printf("%q\n", gate.HashFlow(secret, ""))
	// Output:
	// 32 false true
	// ""
}

// A gate of one's own asks for the flow alone.
func ExampleFlowOf() {
	ctx := gate.WithFlow(context.Background(), "tenant-7", 3)
	fmt.Println(gate.FlowOf(ctx))
	// Output: tenant-7 3
}

// Adapters tell a client how long it stood in the queue.
func ExampleServerTiming() {
	fmt.Println(gate.ServerTiming(1500 * time.Microsecond))
	// Output: queue;dur=1.5
}
