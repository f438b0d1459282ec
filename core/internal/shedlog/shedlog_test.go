package shedlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func lines(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var line map[string]any
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
}

// Of each reason there is a line a second at most, which tells how many were left out.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewJSONHandler(&out, nil)))
		asked := 0
		detail := func() []slog.Attr { asked++; return []slog.Attr{slog.Int("inflight", 7)} }
		for range 250 { // 2.5 s
			l.Refused(&gate.Rejection{Gate: "lanes", Reason: gate.QueueFull}, detail)
			l.Refused(&gate.Rejection{Gate: "lanes", Reason: gate.QueueTimeout}, nil)
			l.Refused(&gate.Rejection{Gate: "lanes", Reason: gate.Canceled}, detail)
			time.Sleep(10 * time.Millisecond)
		}
		var leftOut []float64
		for _, line := range lines(t, out.String()) {
			if line["reason"] == "queue_full" {
				leftOut = append(leftOut, line["left_out"].(float64))
				if line["inflight"] != 7.0 || line["level"] != "WARN" {
					t.Errorf("a line %v", line)
				}
			}
		}
		if len(leftOut) != 3 || leftOut[0] != 0 || leftOut[1] != 99 || leftOut[2] != 99 {
			t.Errorf("lines after %v refusals that were left out", leftOut)
		}
		if n := len(lines(t, out.String())); n != 6 || asked != 3 {
			t.Errorf("%d lines, details of %d", n, asked)
		}
	})
}

// A line has what the rejection says and nothing of its cause.
func TestLine(t *testing.T) {
	var out bytes.Buffer
	l := New(slog.New(slog.NewJSONHandler(&out, nil)))
	l.Refused(&gate.Rejection{
		Gate: "inflight", Reason: gate.QueueTimeout, Lane: "https://api.example|m", Class: gate.Bulk, Waited: 1500 * time.Millisecond,
		Position: 14, Limit: 6, Unit: "slots", RetryAfter: 3 * time.Second, Advice: "wait", Cause: errors.New("secret"),
	}, nil)
	line := lines(t, out.String())[0]
	delete(line, "time")
	got, _ := json.Marshal(line)
	want := `{"class":"bulk","gate":"inflight","lane":"https://api.example|m","left_out":0,"level":"WARN","limit":6,"msg":"request refused",` +
		`"position":14,"reason":"queue_timeout","retry_after_s":3,"unit":"slots","waited_s":1.5}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// A reason that nobody knows here is bounded too. The logger can change and be missing.
func TestUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second bytes.Buffer
		l := New(nil)
		refuse := func(r gate.Reason) { l.Refused(&gate.Rejection{Gate: "x", Reason: r}, nil) }
		refuse("new")
		l.Use(slog.New(slog.NewJSONHandler(&first, nil)))
		refuse("new")
		refuse("newer")
		time.Sleep(every)
		l.Use(slog.New(slog.NewJSONHandler(&second, nil)))
		refuse("newer")
		time.Sleep(every)
		l.Use(slog.New(slog.NewJSONHandler(&second, &slog.HandlerOptions{Level: slog.LevelError})))
		refuse("new")
		l.Use(nil)
		refuse("new")
		if a, b := lines(t, first.String()), lines(t, second.String()); len(a) != 1 || len(b) != 1 || b[0]["left_out"] != 1.0 {
			t.Errorf("%v and %v", a, b)
		}
	})
}

// counting is a handler that counts its lines and sums up what they have left out.
type counting struct {
	slog.Handler
	lines, leftOut *atomic.Int64
}

func (c counting) Enabled(context.Context, slog.Level) bool { return true }

func (c counting) Handle(_ context.Context, r slog.Record) error {
	c.lines.Add(1)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "left_out" {
			c.leftOut.Add(a.Value.Int64())
		}
		return true
	})
	return nil
}

// With many at once every refusal is in a line or among those left out.
func TestNoneIsLost(t *testing.T) {
	const workers, each = 8, 500
	var written, leftOut atomic.Int64
	l := New(slog.New(counting{lines: &written, leftOut: &leftOut}))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				l.Refused(&gate.Rejection{Gate: "x", Reason: gate.QueueFull}, nil)
			}
		})
	}
	wg.Wait()
	rest := l.lines[place(gate.QueueFull)].leftOut.Load()
	if n := written.Load() + leftOut.Load() + rest; n != workers*each || written.Load() == 0 {
		t.Errorf("%d lines, %d left out, %d to be told: %d in all", written.Load(), leftOut.Load(), rest, n)
	}
}

// A flood that ends leaves nobody untold: what no next line tells has a line of its own, which
// keeps to the bound as others do.
func TestI11TheEndOfAFloodIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewJSONHandler(&out, nil)))
		flood := func(n int) {
			for range n {
				l.Refused(&gate.Rejection{Gate: "lanes", Reason: gate.QueueFull}, nil)
			}
		}
		flood(10_000)
		time.Sleep(every) // the next second's first has the line
		flood(10_000)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := lines(t, out.String())
		if len(got) != 3 || got[2]["msg"] != "more requests refused" || got[2]["gate"] != "lanes" || got[2]["reason"] != "queue_full" {
			t.Fatalf("lines %v", got)
		}
		sum, last := 0.0, time.Time{}
		for i, line := range got {
			sum += line["left_out"].(float64)
			if line["msg"] == "request refused" {
				sum++
			}
			at, err := time.Parse(time.RFC3339, line["time"].(string))
			if err != nil || i > 0 && at.Sub(last) < every {
				t.Errorf("a line at %v after one at %v: %v", at, last, err)
			}
			last = at
		}
		if sum != 20_000 {
			t.Errorf("the lines tell of %v refusals", sum)
		}
		time.Sleep(every)
		flood(1) // who comes alone is told at once, and leaves nothing to tell
		time.Sleep(time.Minute)
		synctest.Wait()
		if got = lines(t, out.String()); len(got) != 4 || got[3]["left_out"] != 0.0 {
			t.Errorf("lines %v", got)
		}
	})
}

// However refusals come, no reason has two lines within a second, and in the end the lines
// tell of all.
func TestEveryPatternIsToldInFull(t *testing.T) {
	for _, pause := range []time.Duration{1, 10 * time.Millisecond, 249 * time.Millisecond, 250 * time.Millisecond, 700 * time.Millisecond, every, 1750 * time.Millisecond, 1800 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			told, last := int64(0), time.Time{}
			l := New(slog.New(locked(func(r slog.Record) {
				if since := r.Time.Sub(last); since < every {
					t.Errorf("pause %v: a line %v after the last", pause, since)
				}
				last = r.Time
				told += leftOut(r)
				if r.Message == "request refused" {
					told++
				}
			})))
			for i := range 300 {
				l.Refused(&gate.Rejection{Gate: "x", Reason: gate.QueueFull}, nil)
				if i%2 == 1 {
					time.Sleep(pause)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if told != 300 {
				t.Errorf("pause %v: told of %d", pause, told)
			}
		})
	}
}

// Close tells the rest at once. After it no timer writes, and refusals have lines as before.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewJSONHandler(&out, nil)))
		flood := func() {
			for range 5 {
				l.Refused(&gate.Rejection{Gate: "x", Reason: gate.QueueFull}, nil)
			}
		}
		flood()
		l.Close()
		l.Close()
		if got := lines(t, out.String()); len(got) != 2 || got[1]["left_out"] != 4.0 {
			t.Errorf("lines %v", got)
		}
		flood()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := lines(t, out.String()); len(got) != 2 {
			t.Errorf("lines after Close: %v", got)
		}
		flood()
		if got := lines(t, out.String()); len(got) != 3 || got[2]["left_out"] != 5.0 {
			t.Errorf("lines of a later refusal: %v", got)
		}
	})
}

// A logger that is gone, or panics, while a timer is to write to it ends nothing; what could not
// be told is told by the next line.
func TestTheRestOfALoggerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		good, n := slog.New(slog.NewJSONHandler(&out, nil)), 0
		l := New(slog.New(locked(func(slog.Record) {
			if n++; n > 1 {
				panic("handler")
			}
		})))
		flood := func() {
			for range 3 {
				l.Refused(&gate.Rejection{Gate: "x", Reason: gate.QueueFull}, nil)
			}
		}
		flood()
		time.Sleep(time.Minute) // it has panicked
		synctest.Wait()
		if n != 2 {
			t.Errorf("%d lines", n)
		}
		l.Use(good)
		flood()
		l.Use(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		l.Use(good)
		flood()
		time.Sleep(time.Minute)
		synctest.Wait()
		var left []any
		for _, line := range lines(t, out.String()) {
			left = append(left, line["left_out"])
		}
		if !reflect.DeepEqual(left, []any{0.0, 2.0, 2.0}) {
			t.Errorf("left out %v", left)
		}
	})
}

// locked is a handler that calls f for one record after the other.
func locked(f func(slog.Record)) handler {
	var mu sync.Mutex
	return func(r slog.Record) {
		mu.Lock()
		defer mu.Unlock()
		f(r)
	}
}

// handler is a slog.Handler that is a function.
type handler func(slog.Record)

func (h handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h handler) WithGroup(string) slog.Handler            { return h }
func (h handler) Handle(_ context.Context, r slog.Record) error {
	h(r)
	return nil
}

func leftOut(r slog.Record) (n int64) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "left_out" {
			n = a.Value.Int64()
		}
		return true
	})
	return n
}
