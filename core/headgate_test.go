package headgate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

const mib = 1 << 20

// small returns a config with a budget of 8 MiB, in which everything is heavy.
func small() headgate.Config {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	c.Admission.MaxInflightBytes = 8 * mib
	c.Admission.HeavyBytes = 1
	return c
}

// open opens c for the length of a test.
func open(t *testing.T, c headgate.Config) *headgate.Headgate {
	t.Helper()
	h, err := headgate.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Bytes.Close()
		h.Tenants.Close()
		h.Outbound.Close()
		h.Memory.Close()
	})
	return h
}

// hold takes n bytes.
func hold(t *testing.T, h *headgate.Headgate, n int64) gate.Lease {
	t.Helper()
	l, err := h.Bytes.Acquire(t.Context(), gate.Request{Bytes: n})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wait asks for n bytes in the background. What becomes of it can be received.
func wait(t *testing.T, h *headgate.Headgate, n int64) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		l, err := h.Bytes.Acquire(context.Background(), gate.Request{Bytes: n})
		l.Release()
		done <- err
	}()
	return done
}

func TestOpenLogsOneLine(t *testing.T) {
	for _, c := range []struct {
		mode gate.Mode
		want string
	}{
		{gate.Enforce, `level=INFO msg="headgate is open" admission=enforce max_inflight_bytes=64MiB budget_source=override admission_queue_timeout=3s lanes=shadow virtual_lanes=false inflight=off max_inflight=0 inflight_queue_timeout=5m0s`},
		{gate.Shadow, `level=INFO msg="headgate is open" admission=shadow max_inflight_bytes=64MiB budget_source=override admission_queue_timeout=3s lanes=shadow virtual_lanes=false inflight=off max_inflight=0 inflight_queue_timeout=5m0s`},
		{gate.Off, `level=INFO msg="headgate is open" admission=off max_inflight_bytes=64MiB budget_source=override admission_queue_timeout=3s lanes=shadow virtual_lanes=false inflight=off max_inflight=0 inflight_queue_timeout=5m0s`},
	} {
		var log bytes.Buffer
		conf := headgate.DefaultConfig()
		conf.Logger = slog.New(slog.NewTextHandler(&log, nil))
		conf.Admission.Mode, conf.Admission.MaxInflightBytes, conf.Admission.QueueTimeout = c.mode, 64*mib, 3*time.Second
		h := open(t, conf)
		if err := h.Shutdown(t.Context(), nil); err != nil {
			t.Error(err)
		}
		_, line, _ := strings.Cut(log.String(), " ") // the time
		if line != c.want+"\n" {
			t.Errorf("logged\n%q, want\n%q", line, c.want+"\n")
		}
	}
}

// Without a Logger the line goes to slog's default.
func TestOpenLogsToDefault(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	open(t, headgate.DefaultConfig())
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "headgate is open") {
		t.Errorf("logged %q", got)
	}
}

func TestOpenLogsNothingOnError(t *testing.T) {
	var log bytes.Buffer
	c := headgate.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if h, err := headgate.Open(c); h != nil || err == nil || log.Len() > 0 {
		t.Errorf("Open = %v, %v, logged %q", h, err, log.String())
	}
}

// Gates without a logger of their own write their refusals to the common one, after a
// change too.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var common, own bytes.Buffer
		c := small()
		c.Logger = slog.New(slog.NewTextHandler(&common, nil))
		c.Inflight.MaxInflight, c.Inflight.MaxQueue, c.Inflight.Logger = 1, 0, slog.New(slog.NewTextHandler(&own, nil))
		h := open(t, c)
		for range 2 {
			common.Reset()
			own.Reset()
			if _, err := h.Bytes.Acquire(t.Context(), gate.Request{Bytes: 1 << 40}); err == nil {
				t.Error("1 TiB is admitted")
			}
			slot, err := h.Outbound.Acquire(t.Context(), gate.Request{Lane: "a"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Outbound.Acquire(t.Context(), gate.Request{Lane: "a"}); err == nil {
				t.Error("a second slot")
			}
			slot.Release()
			if a, b := common.String(), own.String(); !strings.Contains(a, "gate=admission") || !strings.Contains(b, "gate=inflight") ||
				strings.Contains(a, "gate=inflight") {
				t.Errorf("the common log has %q, the other %q", a, b)
			}
			if err := h.Reconfigure(c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// The budget goes by the memory that Memory watches, and every gate's state says so.
func TestPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := headgate.DefaultConfig()
		c.Logger, c.Pressure.Collect = slog.New(slog.DiscardHandler), false
		c.Pressure.Root = fstest.MapFS{
			"proc/meminfo":                     {Data: []byte("MemTotal:  67108864 kB\n")},
			"proc/self/cgroup":                 {Data: []byte("0::/app\n")},
			"sys/fs/cgroup/app/memory.max":     {Data: []byte("8589934592\n")},
			"sys/fs/cgroup/app/memory.current": {Data: []byte("8389934592\n")},
			"sys/fs/cgroup/app/memory.stat":    {Data: []byte("anon 8389934592\n")},
		}
		h := open(t, c)
		hold(t, h, mib).Release()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s := h.Snapshot()
		if s.Pressure.Severity != pressure.Critical || s.Admission.PressureSeverity != pressure.Critical || s.Admission.CeilingBytes != 8<<30 {
			t.Errorf("%+v", s)
		}
		if _, err := h.Bytes.Acquire(t.Context(), gate.Request{Bytes: mib}); !errors.Is(err, gate.ResourcePressure) {
			t.Errorf("a heavy body: %v", err)
		}
		hold(t, h, 1<<10).Release()
		c.Pressure.WorkingSet = pressure.Thresholds{High: 0.98, Critical: 0.99, Recovered: 0.979}
		if err := h.Reconfigure(c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		hold(t, h, mib).Release()
	})
}

// A change applies at once: who waited for the larger budget is let in by it.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := small()
		h := open(t, c)
		defer hold(t, h, 8*mib).Release()
		waiter := wait(t, h, 8*mib)
		synctest.Wait()
		if n := h.Snapshot().Admission.Waiting; n != 1 {
			t.Fatalf("%d wait, want 1", n)
		}
		c.Admission.MaxInflightBytes = 16 * mib
		if err := h.Reconfigure(c); err != nil {
			t.Fatal(err)
		}
		if err := <-waiter; err != nil {
			t.Error(err)
		}
		if got := h.Snapshot().Admission.MaxInflightBytes; got != 16*mib {
			t.Errorf("the budget reads %d", got)
		}
	})
}

// With one field wrong, none of the others is applied.
func TestReconfigureAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, small())
		defer hold(t, h, 8*mib).Release()
		waiter := wait(t, h, mib)
		synctest.Wait()
		before := h.Snapshot()
		for field, spoil := range map[string]func(*headgate.Config){
			"QueueTimeout":  func(c *headgate.Config) { c.Admission.QueueTimeout = -1 },
			"HeapShedRatio": func(c *headgate.Config) { c.Admission.HeapShedRatio = 0 },
			"Exempt[0]":     func(c *headgate.Config) { c.Admission.Exempt = []string{""} },
		} {
			c := small()
			c.Admission.MaxInflightBytes, c.Admission.Mode, c.Admission.MaxHeavyInFlight = 64*mib, gate.Off, 5
			spoil(&c)
			if err := h.Reconfigure(c); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("error %v, want one that names %s", err, field)
			}
			synctest.Wait()
			if after := h.Snapshot(); !reflect.DeepEqual(before, after) {
				t.Errorf("%s is wrong, and yet\n%+v became\n%+v", field, before, after)
			}
		}
		if err := <-waiter; !errors.Is(err, gate.QueueTimeout) {
			t.Errorf("the waiter ended with %v, want the old timeout", err)
		}
	})
}

func TestReconfigureAfterShutdown(t *testing.T) {
	h := open(t, small())
	if err := h.Shutdown(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	c := small()
	c.Admission.MaxInflightBytes = 64 * mib
	if err := h.Reconfigure(c); err != nil {
		t.Error(err)
	}
	if _, err := h.Bytes.Acquire(t.Context(), gate.Request{Bytes: 1}); !errors.Is(err, gate.ShuttingDown) {
		t.Errorf("Acquire = %v, want shutting_down", err)
	}
}

// The JSON has each gate under its package's name, and the names that other
// programs read.
func TestSnapshotJSON(t *testing.T) {
	h := open(t, small())
	lease := hold(t, h, 3*mib)
	defer lease.Release()
	b, err := json.Marshal(h.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got["admission"] == nil || got["pressure"] == nil || got["lanes"] == nil || got["inflight"] == nil {
		t.Fatalf("packages in %s, want admission, pressure, lanes and inflight", b)
	}
	if off := map[string]any{"enabled": false}; !reflect.DeepEqual(got["inflight"], off) {
		t.Errorf("inflight without a limit is %v, want %v", got["inflight"], off)
	}
	for key, want := range map[string]any{
		"mode": "enforce", "inflight_bytes": 3.0 * mib, "max_inflight_bytes": 8.0 * mib, "budget_source": "override",
		"count_cap_enabled": false, "waiting": 0.0, "queued_bytes": 0.0, "sheds_by_reason": map[string]any{},
	} {
		if value := got["admission"][key]; !reflect.DeepEqual(value, want) {
			t.Errorf("%s is %v, want %v", key, value, want)
		}
	}
	for key := range got["admission"] {
		if key != strings.ToLower(key) || strings.ContainsAny(key, " -.") {
			t.Errorf("the key %q is not in snake_case", key)
		}
	}
}
