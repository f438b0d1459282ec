package headgate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
)

// logger writes log lines without the time, for the examples' output.
func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func quiet() headgate.Config {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

// The budget is derived from the process's memory limit unless it is set.
func ExampleOpen() {
	c := headgate.DefaultConfig()
	c.Admission.MaxInflightBytes = 64 << 20
	c.Logger = logger()
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := hg.Shutdown(context.Background(), nil); err != nil {
		fmt.Println(err)
	}
	// Output: level=INFO msg="headgate is open" admission=enforce max_inflight_bytes=64MiB budget_source=override admission_queue_timeout=15s lanes=shadow virtual_lanes=false inflight=off max_inflight=0 inflight_queue_timeout=5m0s
}

func ExampleDefaultConfig() {
	c := headgate.DefaultConfig()
	fmt.Println(c.Admission.Mode, c.Admission.QueueTimeout, c.Admission.HardMaxBodyBytes)
	// Output: enforce 15s 50MiB
}

func ExampleConfigFromEnv() {
	environment := map[string]string{
		"HEADGATE_MAX_INFLIGHT_BYTES":      "64MiB",
		"HEADGATE_ADMISSION_QUEUE_TIMEOUT": "soon",
	}
	getenv := func(name string) string { return environment[name] } // os.Getenv in a program

	_, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), getenv)
	fmt.Println(err)

	environment["HEADGATE_ADMISSION_QUEUE_TIMEOUT"] = "30s"
	c, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), getenv)
	fmt.Println(c.Admission.MaxInflightBytes, c.Admission.QueueTimeout, err)
	// Output:
	// HEADGATE_ADMISSION_QUEUE_TIMEOUT is "soon": want a duration such as 1m30s
	// 64MiB 30s <nil>
}

func ExampleConfig_Validate() {
	c := headgate.DefaultConfig()
	c.Admission.HeapShedRatio = 75
	fmt.Println(c.Validate())
	// Output: admission: HeapShedRatio is 75: want above 0, up to 1 (DefaultConfig has working values)
}

// A configuration that is wrong anywhere changes nothing.
func ExampleHeadgate_Reconfigure() {
	c := quiet()
	c.Admission.MaxInflightBytes = 64 << 20
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hg.Shutdown(context.Background(), nil) }()

	c.Admission.MaxInflightBytes = 128 << 20
	c.Admission.MaxWaiters = -5
	fmt.Println(hg.Reconfigure(c))
	fmt.Println(gate.Size(hg.Snapshot().Admission.MaxInflightBytes))

	c.Admission.MaxWaiters = 100
	fmt.Println(hg.Reconfigure(c))
	fmt.Println(gate.Size(hg.Snapshot().Admission.MaxInflightBytes))
	// Output:
	// admission: MaxWaiters is -5: want at least 0 (DefaultConfig has working values)
	// 64MiB
	// <nil>
	// 128MiB
}

// A snapshot is what a status page answers.
func ExampleHeadgate_Snapshot() {
	c := quiet()
	c.Admission.MaxInflightBytes = 64 << 20
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hg.Shutdown(context.Background(), nil) }()
	lease, err := hg.Bytes.Acquire(context.Background(), gate.Request{Bytes: 5 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release()

	status := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(hg.Snapshot())
	})
	answer := httptest.NewRecorder()
	status.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/headgate/status", http.NoBody))

	var read headgate.Snapshot
	if err := json.Unmarshal(answer.Body.Bytes(), &read); err != nil {
		fmt.Println(err)
	}
	fmt.Println(read.Admission.InflightBytes, "of", read.Admission.MaxInflightBytes)
	// Output: 5242880 of 67108864
}

// A program drains when it is told to stop: whoever waits is refused at once, the
// server stops, and what runs gets ten seconds.
func ExampleHeadgate_Shutdown() {
	hg, err := headgate.Open(quiet())
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := hg.Shutdown(ctx, srv.Shutdown); err != nil {
		fmt.Println("some requests were cut:", err)
	}

	_, err = hg.Bytes.Acquire(context.Background(), gate.Request{Bytes: 1})
	fmt.Println(errors.Is(err, gate.ShuttingDown))
	// Output: true
}
