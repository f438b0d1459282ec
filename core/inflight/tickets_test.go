package inflight

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// What made a call give up its place, or closed the lane, is remembered as a full queue is:
// the same error again, though a slot is free by then.
func TestDisplacedAndClosedAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, func(c *Config) { c.MaxQueue = 1 })
		held := take(t, l, gate.Default)
		c := newCrowd(t, l)
		displaced := WithCall(gate.WithClass(context.Background(), gate.Bulk))
		closed := WithCall(gate.WithClass(context.Background(), gate.Interactive))
		c.ask("displaced", displaced, gate.Request{})
		c.ask("closed", closed, gate.Request{})
		first := c.wantErr("displaced", gate.Displaced)
		l.Pause(llm, time.Second)
		held.Release()
		_, again := l.Acquire(displaced, gate.Request{Lane: llm})
		if again != error(first) {
			t.Errorf("%v, then %v", first, again)
		}
		l.Close()
		synctest.Wait()
		first = c.wantErr("closed", gate.ShuttingDown)
		if _, again := l.Acquire(closed, gate.Request{Lane: llm}); again != error(first) {
			t.Errorf("%v, then %v", first, again)
		}
		if s := state(t, l); s.RepeatSheds != 2 || s.Sheds != 2 {
			t.Errorf("%d sheds, %d again", s.Sheds, s.RepeatSheds)
		}
	})
}

// A ticket remembers 8 lanes and no more: a client that tries many back ends in one call
// makes it no larger.
func TestTicketRemembersEightLanes(t *testing.T) {
	l := open(t, func(c *Config) { c.MaxQueue = 0 })
	call := WithCall(context.Background())
	for i := range 12 {
		r := gate.Request{Lane: fmt.Sprint("lane ", i)}
		held, err := l.Acquire(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(call, r); !errors.Is(err, gate.QueueFull) {
			t.Fatal(err)
		}
		held.Release()
	}
	for i := range 12 {
		lease, err := l.Acquire(call, gate.Request{Lane: fmt.Sprint("lane ", i)})
		if (err != nil) != (i < 8) {
			t.Errorf("lane %d: %v", i, err)
		}
		lease.Release()
	}
	if c := callOf(call); len(c.asked) != 8 || cap(c.asked) > 16 {
		t.Errorf("it keeps %d lanes in room for %d", len(c.asked), cap(c.asked))
	}
}
