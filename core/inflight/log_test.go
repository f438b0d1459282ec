package inflight

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// I7, I11: a refusal has a line with the numbers that decided, without the caller's flow; a
// flood has a line a second for each reason, and a call that is refused again has none.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := open(t, func(c *Config) {
			c.MaxInflight, c.MaxQueue, c.QueueTimeout, c.InteractiveReserve = 1, 1, time.Second, 0
			c.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		held, err := l.Acquire(context.Background(), gate.Request{Lane: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(ctx context.Context) {
			if _, err := l.Acquire(ctx, gate.Request{Lane: "a", Flow: "secret"}); err == nil {
				t.Error("admitted")
			}
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			ctx := WithCall(context.Background())
			ask(ctx)
			ask(ctx)
		}()
		synctest.Wait()
		for range 10 {
			ask(gate.WithClass(context.Background(), gate.Bulk))
		}
		<-done
		held.Release()
		var got []string
		for _, text := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(line["lane"], " ", line["reason"], " ", line["class"], ": limit ", line["limit"], ", inflight ", line["inflight"], ", queued ", line["queued"]))
		}
		want := []string{"a queue_full bulk: limit 1, inflight 1, queued 1", "a queue_timeout default: limit 1, inflight 1, queued 0"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("lines:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("a flow is in %s", &out)
		}
	})
}
