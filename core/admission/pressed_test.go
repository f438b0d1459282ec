package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/pressure"
)

// High pressure leaves a quarter of the wait, counted from arrival: who has waited for
// longer leaves at once. What is waited for later has all the time again.
func TestHighShortensTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.QueueTimeout = 20 * time.Second })
		lease := admit(t, b, 8*mib)
		start := time.Now()
		first := acquire(context.Background(), b, gate.Request{Bytes: 4 * mib})
		time.Sleep(2 * time.Second)
		second := acquire(context.Background(), b, gate.Request{Bytes: 1 * kib})
		time.Sleep(4 * time.Second)
		b.press(pressure.High)
		third := acquire(context.Background(), b, gate.Request{Bytes: 4 * mib})
		ended := func(done <-chan result, after time.Duration) {
			t.Helper()
			r := <-done
			refused(t, r.err, gate.QueueTimeout)
			if got := r.at.Sub(start); got != after {
				t.Errorf("ended after %v, want %v", got, after)
			}
		}
		ended(first, 6*time.Second)
		ended(second, 7*time.Second)
		ended(third, 11*time.Second)
		b.press(pressure.Normal)
		ended(acquire(context.Background(), b, gate.Request{Bytes: 4 * mib}), 31*time.Second)
		lease.Release()
	})
}

// For no arrival and no change of severity a wait is shorter at lower pressure.
func TestWaitByPressure(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 3, time.Second, 15 * time.Second, time.Duration(1<<63 - 1)} {
		last := time.Duration(1<<63 - 1)
		for _, s := range []pressure.Severity{pressure.Normal, pressure.High, pressure.Critical} {
			set := &settings{Config: Config{QueueTimeout: d}, severity: s}
			if got := set.wait(); got > last {
				t.Errorf("of %v: %v at %s, %v below", d, got, s, last)
			} else {
				last = got
			}
		}
	}
}

// Critical pressure refuses heavy bodies, room or not, and those that wait, at once.
// Light ones, exempt paths and bodies that are being read go on.
func TestCriticalSheds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Exempt = []string{"/healthz"} })
		reading := admit(t, b, -1)
		body := reading.Body(io.NopCloser(io.LimitReader(zeros{}, 3*mib)), nil)
		buf := make([]byte, mib)
		if _, err := io.ReadFull(body, buf); err != nil {
			t.Fatal(err)
		}
		waiter := acquire(context.Background(), b, gate.Request{Bytes: 8 * mib})
		waits(t, waiter)
		time.Sleep(3 * time.Second)
		b.press(pressure.Critical)
		check := func(err error, waited time.Duration) {
			t.Helper()
			r := refused(t, err, gate.ResourcePressure)
			if r.Status() != 503 || r.RetryAfter < recovery || r.RetryAfter > time.Minute || r.Waited != waited || !strings.Contains(r.Error(), "memory limit") {
				t.Errorf("%d, Retry-After %v, waited %v: %v", r.Status(), r.RetryAfter, r.Waited, r)
			}
		}
		check((<-waiter).err, 3*time.Second)
		for _, n := range []int64{256 * kib, 8 * mib, -1} {
			_, err := b.Acquire(context.Background(), gate.Request{Bytes: n})
			check(err, 0)
		}
		for n, reason := range map[int64]gate.Reason{60 * mib: gate.PayloadTooLarge, 9 * mib: gate.BodyExceedsBudget} {
			_, err := b.Acquire(context.Background(), gate.Request{Bytes: n})
			refused(t, err, reason)
		}
		left, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := b.Acquire(left, gate.Request{Bytes: mib})
		refused(t, err, gate.Canceled)

		admit(t, b, 255*kib).Release()
		admit(t, b, 0).Release()
		exempt, err := b.Acquire(context.Background(), gate.Request{Path: "/healthz"})
		if err != nil {
			t.Errorf("exempt: %v", err)
		}
		exempt.Release()
		if n, err := io.Copy(io.Discard, body); n != 2*mib || err != nil {
			t.Errorf("of the body that was being read %d bytes more arrive, %v", n, err)
		}
		reading.Release()
		s := b.Snapshot()
		if s.PressureSeverity != pressure.Critical || s.ShedReasons[gate.ResourcePressure] != 4 {
			t.Errorf("%+v", s)
		}
		b.press(pressure.High)
		admit(t, b, 8*mib).Release()
	})
}

// Who looked at the settings before it was critical, and came to wait after, leaves within
// a second.
func TestCriticalShedsLateComers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		lease := admit(t, b, 8*mib)
		before := b.set.Load()
		b.press(pressure.Critical)
		start := time.Now()
		_, err := b.acquireSlow(context.Background(), before, b.lease(mib, 1), &gate.Request{Bytes: mib}, heavy, mib)
		refused(t, err, gate.ResourcePressure)
		if d := time.Since(start); d > refresh {
			t.Errorf("it took %v", d)
		}
		lease.Release()
	})
}

// Shadow mode says what critical pressure would do, off does nothing.
func TestCriticalInOtherModes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Shadow })
		first, second := admit(t, b, 8*mib), admit(t, b, mib)
		would(t, b, 1, 1, 0)
		b.press(pressure.Critical)
		third := admit(t, b, 4*mib)
		would(t, b, 1, 1, 1)
		light := admit(t, b, 4*kib)
		would(t, b, 1, 2, 1)
		for _, l := range []gate.Lease{first, second, third, light} {
			l.Release()
		}
		off := budget(t, 8*mib, func(c *Config) { c.Mode = gate.Off })
		off.press(pressure.Critical)
		admit(t, off, 8*mib).Release()
	})
}

// While the severity changes at random under load nothing is lost, nobody heavy is let in
// who came while it was critical, and a reload does not undo it.
func TestSeverityUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := budget(t, 8*mib, nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 31))
				for ctx.Err() == nil {
					n := int64(r.IntN(4 * mib))
					before := b.Snapshot().PressureSeverity
					l, err := b.Acquire(ctx, gate.Request{Bytes: n})
					if err == nil && n >= 256*kib && before == pressure.Critical {
						t.Error("a heavy body is admitted")
					}
					time.Sleep(1 + time.Duration(r.Int64N(int64(100*time.Millisecond))))
					l.Release()
				}
			})
		}
		r := rand.New(rand.NewPCG(1, 32))
		for ctx.Err() == nil {
			s := pressure.Severity(r.IntN(3))
			b.press(s)
			c := b.set.Load().Config
			c.MaxWaiters = 1 + r.IntN(30)
			if err := b.Reconfigure(c); err != nil || b.Snapshot().PressureSeverity != s {
				t.Errorf("%v, severity %s after a reload at %s", err, b.Snapshot().PressureSeverity, s)
			}
			time.Sleep(1 + time.Duration(r.Int64N(int64(3*time.Second))))
		}
		wg.Wait()
		b.press(pressure.Normal)
		admit(t, b, 8*mib).Release()
	})
}

// A budget with a monitor takes severity and ceiling from it, until it is closed, and says
// all that decided in the line of the log.
func TestMonitor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		p := pressure.DefaultConfig()
		p.Collect, p.Root = false, fstest.MapFS{
			"proc/meminfo":                 {Data: []byte("MemTotal:  67108864 kB\n")},
			"proc/self/cgroup":             {Data: []byte("0::/app\n")},
			"sys/fs/cgroup/app/memory.max": {Data: []byte("8589934592\n")}, "sys/fs/cgroup/app/memory.current": {Data: []byte("8389934592\n")},
			"sys/fs/cgroup/app/memory.stat": {Data: []byte("anon 8389934592\n")},
		}
		m, err := pressure.New(p)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		c := DefaultConfig()
		c.Pressure, c.Logger = m, slog.New(slog.NewJSONHandler(&out, nil))
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s := b.Snapshot()
		if s.PressureSeverity != pressure.Critical || s.CeilingBytes != 8*gib || s.MaxInflightBytes != 256*mib || s.BudgetSource != "cgroup" {
			t.Errorf("%+v", s)
		}
		_, err = b.Acquire(context.Background(), gate.Request{Bytes: mib})
		refused(t, err, gate.ResourcePressure)
		var line struct {
			Cost     int64
			Pressure struct {
				Severity, Signal string
				Working          struct {
					Value float64
					Limit int64 `json:"limit_bytes"`
				} `json:"working_set"`
			}
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if p := line.Pressure; line.Cost != mib || p.Severity != "critical" || p.Signal != "working_set" || p.Working.Value < 0.97 || p.Working.Limit != 8*gib {
			t.Errorf("%s", &out)
		}
		p.WorkingSet = pressure.Thresholds{High: 0.98, Critical: 0.99, Recovered: 0.979}
		if err := m.Reconfigure(p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if l, err := b.Acquire(context.Background(), gate.Request{Bytes: mib}); err != nil {
			t.Errorf("after it has recovered: %v", err)
		} else {
			l.Release()
		}
	})
}
