package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
)

func ExampleNew() {
	c := inflight.DefaultConfig()
	c.MaxInflight = 6
	l, err := inflight.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	lease, err := l.Acquire(context.Background(), gate.Request{Lane: "https://llm.example.com/v1|large"})
	defer lease.Release() // harmless on the zero Lease
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Snapshot().Lanes[0].Inflight, "in flight")
	// Output: 1 in flight
}

// Do waits for the slot first, so that the client's own timeout begins when the
// back end is there for it.
func ExampleLimiter_Do() {
	c := inflight.DefaultConfig()
	c.MaxInflight = 6
	l, _ := inflight.New(c)
	defer l.Close()

	ctx := gate.WithClass(context.Background(), gate.Interactive)
	err := l.Do(ctx, "https://llm.example.com", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return answer(ctx)
	})
	fmt.Println(err)
	// Output: <nil>
}

func answer(context.Context) error { return nil }

// A retry under one ticket keeps the place of the first attempt, and a call that
// was refused once does not queue again.
func ExampleWithCall() {
	c := inflight.DefaultConfig()
	c.MaxInflight, c.MaxQueue = 1, 0
	l, _ := inflight.New(c)
	defer l.Close()
	held, _ := l.Acquire(context.Background(), gate.Request{Lane: "llm"})

	ctx := inflight.WithCall(context.Background())
	_, first := l.Acquire(ctx, gate.Request{Lane: "llm"})
	held.Release() // a slot is free by now
	_, second := l.Acquire(ctx, gate.Request{Lane: "llm"})

	fmt.Println(errors.Is(first, gate.QueueFull), second == first)
	// Output: true true
}

func ExampleLimiter_Reconfigure() {
	c := inflight.DefaultConfig()
	l, _ := inflight.New(c) // off: MaxInflight is 0
	defer l.Close()

	c.MaxInflight = 6
	two := 2
	c.Lanes = map[string]inflight.Override{"https://slow.example.com": {MaxInflight: &two}}
	fmt.Println(l.Reconfigure(c))

	c.MaxInflight = -1
	fmt.Println(l.Reconfigure(c))
	// Output:
	// <nil>
	// inflight: MaxInflight is -1: want 0 to 1000000 (DefaultConfig has working values)
}

func ExampleLimiter_SetLimit() {
	c := inflight.DefaultConfig()
	c.MaxInflight = 8
	l, _ := inflight.New(c)
	defer l.Close()
	lease, _ := l.Acquire(context.Background(), gate.Request{Lane: "llm"})
	defer lease.Release() // of 8 slots

	_ = l.SetLimit("llm", 3) // it stands whatever is configured
	fmt.Println(l.Snapshot().Lanes[0].Limit)
	_ = l.SetLimit("llm", inflight.Inherit)
	fmt.Println(l.Snapshot().Lanes[0].Limit)
	// Output:
	// 3
	// 8
}

func ExampleLimiter_Watch() {
	c := inflight.DefaultConfig()
	c.MaxInflight = 1
	l, _ := inflight.New(c)
	defer l.Close()

	told := make(chan inflight.Demand, 16)
	stop := l.Watch(func(d inflight.Demand) { told <- d })
	defer stop()
	lease, _ := l.Acquire(context.Background(), gate.Request{Lane: "llm"})
	defer lease.Release()
	d := <-told
	fmt.Println(d.Lane, d.Held, d.Waiting)
	// Output: llm 1 0
}

func ExampleLaneKey() {
	models := []string{"large", "small"}
	fmt.Println(inflight.LaneKey("https://user:secret@LLM.example.com/v1/?key=secret", "small", models))
	fmt.Println(inflight.LaneKey("https://llm.example.com/v1", "invented", models))
	// Output:
	// https://llm.example.com/v1|small
	// https://llm.example.com/v1|other
}

// The lane of a client that asks by host, however its base URL is written.
func ExampleHostKey() {
	fmt.Println(inflight.HostKey("HTTPS://user:secret@LLM.example.com:443/v1?key=secret"))
	// Output: https://llm.example.com
}

func ExampleLimiter_Snapshot() {
	c := inflight.DefaultConfig()
	c.MaxInflight = 6
	l, _ := inflight.New(c)
	defer l.Close()
	ctx := gate.WithClass(context.Background(), gate.Bulk)
	lease, _ := l.Acquire(ctx, gate.Request{Lane: "llm"})
	defer lease.Release()

	s := l.Snapshot().Lanes[0]
	fmt.Println(s.Lane, s.Verdict, s.InflightByPriority.Bulk, "bulk in flight, limit", s.Limit, "reserve", s.Reserve)
	// Output: llm busy 1 bulk in flight, limit 6 reserve 1
}
