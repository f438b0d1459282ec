package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// I7, I11: every kind of refusal has a line with the numbers that decided, and none has
// anything of the request but its cost. A flood has a line a second.
func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&out, nil))
		b := budget(t, 8*mib, func(c *Config) { c.MaxWaiters, c.Logger = 0, logger })
		ask := func(n int64) error {
			_, err := b.Acquire(context.Background(), gate.Request{
				Bytes: n, Flow: "sk-secret", Path: "/secret", Route: "/secret", ContentType: "text/secret", Lane: "secret",
			})
			return err
		}
		lease := admit(t, b, 6*mib)
		for range 100 {
			for _, n := range []int64{60 * mib, 9 * mib, 4 * mib} {
				if ask(n) == nil {
					t.Fatal("admitted")
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		long := admit(t, b, -1)
		endless := long.Body(io.NopCloser(io.LimitReader(zeros{}, 9*mib)), nil)
		if _, err := io.Copy(io.Discard, endless); err == nil {
			t.Error("read 9 MiB into 2 MiB of room")
		}
		long.Release()
		lease.Release()
		var got []string
		for _, text := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%v cost %.0f of %.0f, %.0f in flight", line["reason"], line["cost"], line["max_inflight_bytes"], line["inflight_bytes"]))
		}
		want := []string{
			"payload_too_large cost 62914560 of 8388608, 6291456 in flight",
			"body_exceeds_budget cost 9437184 of 8388608, 6291456 in flight",
			"admission_busy cost 4194304 of 8388608, 6291456 in flight",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("lines:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("a secret is in %s", &out)
		}
		time.Sleep(time.Second)
		c := b.set.Load().Config
		c.Logger = logger
		if err := b.Reconfigure(c); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		_ = ask(60 * mib)
		if !strings.Contains(out.String(), `"left_out":99`) {
			t.Errorf("after a second: %s", &out)
		}
	})
}
