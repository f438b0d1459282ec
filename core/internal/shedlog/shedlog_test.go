package shedlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
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
