package admission_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// open returns a budget of 8 MiB.
func open() *admission.Budget {
	c := admission.DefaultConfig()
	c.MaxInflightBytes = 8 << 20
	b, err := admission.New(c)
	if err != nil {
		panic(err)
	}
	return b
}

// The defaults, with a budget of one's own instead of the one that follows from the
// memory ceiling. Values are literal: a field that makes no sense is an error.
func ExampleNew() {
	c := admission.DefaultConfig()
	c.MaxInflightBytes = 64 << 20
	c.HardMaxBodyBytes = 8 << 20
	b, err := admission.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	fmt.Println(gate.Size(b.Snapshot().MaxInflightBytes), b.Snapshot().BudgetSource)

	c.HardMaxBodyBytes = 0
	_, err = admission.New(c)
	fmt.Println(err)
	// Output:
	// 64MiB override
	// admission: HardMaxBodyBytes is 0: want at least 1 (DefaultConfig has working values)
}

func ExampleDefaultConfig() {
	c := admission.DefaultConfig()
	fmt.Println(c.Mode, c.QueueTimeout, c.MaxWaiters, c.HardMaxBodyBytes, c.HeavyBytes)
	fmt.Println("budget from the memory ceiling:", c.MaxInflightBytes == admission.Auto)
	// Output:
	// enforce 15s 1024 50MiB 256KiB
	// budget from the memory ceiling: true
}

// The bytes of a body are reserved before it is read; whoever finds no room is told
// why. Release is deferred before the error is looked at.
func ExampleBudget_Acquire() {
	b := open()
	defer b.Close()
	handle := func(n int64) error {
		lease, err := b.Acquire(context.Background(), gate.Request{Bytes: n, Flow: gate.PeerFlow("192.0.2.7:4711")})
		defer lease.Release()
		if err != nil {
			return err
		}
		upload := io.NopCloser(io.LimitReader(zeros{}, n))
		read, err := io.Copy(io.Discard, lease.Body(upload, nil))
		fmt.Println(read, "bytes read,", b.Snapshot().InflightBytes, "in flight")
		return err
	}
	fmt.Println(handle(1 << 20))

	err := handle(20 << 20)
	fmt.Println(errors.Is(err, gate.BodyExceedsBudget))
	var r *gate.Rejection
	if errors.As(err, &r) {
		fmt.Println(r.Status(), r.Advice)
	}
	// Output:
	// 1048576 bytes read, 1048576 in flight
	// <nil>
	// true
	// 413 the body can never fit: send a smaller one, or raise MaxInflightBytes
}

// zeros is an upload without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A small body that inflates to a large one stops at the cap.
func ExampleBudget_Gunzip() {
	c := admission.DefaultConfig()
	c.MaxDecodedBytes = 1 << 20
	b, err := admission.New(c)
	if err != nil {
		panic(err)
	}
	defer b.Close()

	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = io.CopyN(zw, zeros{}, 32<<20)
	_ = zw.Close()
	fmt.Println("packed:", packed.Len() < 64<<10)

	body, err := b.Gunzip(&packed)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	fmt.Println(n, errors.Is(err, gate.PayloadTooLarge))
	// Output:
	// packed: true
	// 1048576 true
}

// A new configuration counts at once and whole; a wrong one changes nothing.
func ExampleBudget_Reconfigure() {
	b := open()
	defer b.Close()
	lease, _ := b.Acquire(context.Background(), gate.Request{Bytes: 6 << 20})
	defer lease.Release()

	c := admission.DefaultConfig()
	c.MaxInflightBytes = 32 << 20
	fmt.Println(b.Reconfigure(c))
	c.QueueTimeout = -time.Second
	fmt.Println(b.Reconfigure(c))

	s := b.Snapshot()
	fmt.Println(gate.Size(s.InflightBytes), "of", gate.Size(s.MaxInflightBytes))
	// Output:
	// <nil>
	// admission: QueueTimeout is -1s: want at least 0s (DefaultConfig has working values)
	// 6MiB of 32MiB
}

// Refresh reads the memory ceiling now, after a resize for example, and not within
// the next second.
func ExampleBudget_Refresh() {
	b := open()
	defer b.Close()
	b.Refresh()
	fmt.Println(gate.Size(b.Snapshot().MaxInflightBytes)) // set, so it does not follow the ceiling
	// Output: 8MiB
}

func ExampleBudget_Snapshot() {
	b := open()
	defer b.Close()
	lease, _ := b.Acquire(context.Background(), gate.Request{Bytes: 1 << 20})
	defer lease.Release()

	s := b.Snapshot()
	out, _ := json.Marshal(map[string]any{"mode": s.Mode, "inflight_bytes": s.InflightBytes, "waiting": s.Waiting})
	fmt.Println(string(out))
	// Output: {"inflight_bytes":1048576,"mode":"enforce","waiting":0}
}

// Shutdown: Close refuses whoever comes, Drain waits for whoever is in.
func ExampleBudget_Close() {
	b := open()
	lease, _ := b.Acquire(context.Background(), gate.Request{Bytes: 1 << 20})
	b.Close()
	_, err := b.Acquire(context.Background(), gate.Request{Bytes: 1})
	fmt.Println(errors.Is(err, gate.ShuttingDown))

	go lease.Release() // when the handler is done
	fmt.Println(b.Drain(context.Background()))
	// Output:
	// true
	// <nil>
}

// Drain gives up when its context ends; leases that are out stay good.
func ExampleBudget_Drain() {
	b := open()
	lease, _ := b.Acquire(context.Background(), gate.Request{Bytes: 1 << 20})
	defer lease.Release()
	b.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(b.Drain(ctx), lease.Live())
	// Output: context deadline exceeded true
}

// A number that is wrong is named before anything is opened.
func ExampleConfig_Validate() {
	c := admission.DefaultConfig()
	c.HeapShedRatio = 75
	fmt.Println(c.Validate())
	// Output: admission: HeapShedRatio is 75: want above 0, up to 1 (DefaultConfig has working values)
}

// JSON bodies become many copies, so each of their bytes is charged three times.
func ExampleFactor() {
	c := admission.DefaultConfig()
	c.Factors = []admission.Factor{{ContentType: "application/json", Times: 3}}
	b, err := admission.New(c)
	if err != nil {
		panic(err)
	}
	defer b.Close()
	lease, _ := b.Acquire(context.Background(), gate.Request{Bytes: 1000, ContentType: "application/json"})
	defer lease.Release()
	fmt.Println(b.Snapshot().InflightBytes)
	// Output: 3000
}

// With Return the bytes are held until the handler is done; with FirstByte they come
// back when a back end has answered and the body was read to its end.
func ExampleReleaseAt() {
	for _, at := range []admission.ReleaseAt{admission.Return, admission.FirstByte} {
		c := admission.DefaultConfig()
		c.ReleaseAt = at
		b, err := admission.New(c)
		if err != nil {
			panic(err)
		}
		lease, _ := b.Acquire(context.Background(), gate.Request{Bytes: 1000})
		ctx := lease.In(context.Background(), b)
		body := lease.Body(io.NopCloser(io.LimitReader(zeros{}, 1000)), nil)
		_, _ = io.Copy(io.Discard, body)
		gate.Observe(ctx, gate.Sample{FirstByte: 80 * time.Millisecond, Status: 200}) // the transport calls it
		fmt.Println(at, b.Snapshot().InflightBytes)
		lease.Release()
		b.Close()
	}
	// Output:
	// return 1000
	// first_byte 0
}
