package sdktest

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stream holds its slot until its end, and the next one waits for that.
func TestTrap01_StreamHoldsItsSlot(t *testing.T) {
	for name, sdk := range sdks {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(&backend{leave: make(chan struct{})})
			defer s.Close()
			l := slots(t, 1, guard)
			rt := wrap(s.Client().Transport, l, s.URL, clientwrap.Config{})
			first := sdk.open(context.Background(), settings{base: s.URL, rt: rt})
			require.True(t, first.Next(), first.Err())
			assert.Equal(t, 1, lane(t, l).Inflight)
			next := make(chan error, 1)
			go func() { next <- sdk.ask(context.Background(), settings{base: s.URL, rt: rt}) }()
			comesTo(t, 1, func() int { return lane(t, l).Queued })
			assert.Equal(t, 1, lane(t, l).Inflight)
			require.NoError(t, first.Close())
			require.NoError(t, <-next)
			comesTo(t, 0, inFlight(t, l))
		})
	}
}

// A stream that is read to its end gives its slot back, closed or not.
func TestTrap05_StreamToItsEnd(t *testing.T) {
	for name, sdk := range sdks {
		for how, closes := range map[string]bool{"closed": true, "not closed": false} {
			t.Run(name+" "+how, func(t *testing.T) {
				s := httptest.NewServer(new(backend))
				defer s.Close()
				l := slots(t, 1, guard)
				rt := wrap(s.Client().Transport, l, s.URL, clientwrap.Config{})
				stream := sdk.open(context.Background(), settings{base: s.URL, rt: rt})
				events := 0
				for stream.Next() {
					events++
				}
				require.NoError(t, stream.Err())
				assert.Positive(t, events)
				if closes {
					require.NoError(t, stream.Close())
				}
				comesTo(t, 0, inFlight(t, l))
			})
		}
	}
}

// A stream that is canceled, or abandoned under a context that ends, gives its slot
// back, and the back end sees the client leave.
func TestTrap09_StreamIsCanceled(t *testing.T) {
	for name, sdk := range sdks {
		for how, end := range map[string]func(context.CancelFunc, events){
			"canceled and closed": func(cancel context.CancelFunc, s events) { cancel(); _ = s.Close() },
			"abandoned":           func(cancel context.CancelFunc, _ events) { cancel() },
			"canceled, then read": func(cancel context.CancelFunc, s events) { cancel(); s.Next() },
			"closed":              func(_ context.CancelFunc, s events) { _ = s.Close() },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				left := make(chan struct{})
				s := httptest.NewServer(&backend{leave: left})
				defer s.Close()
				l := slots(t, 1, guard)
				rt := wrap(s.Client().Transport, l, s.URL, clientwrap.Config{})
				ctx, cancel := context.WithCancel(gate.WithClass(context.Background(), gate.Interactive))
				defer cancel()
				stream := sdk.open(ctx, settings{base: s.URL, rt: rt})
				require.True(t, stream.Next(), stream.Err())
				assert.EqualValues(t, 1, lane(t, l).InflightByPriority.Interactive)
				end(cancel, stream)
				comesTo(t, 0, inFlight(t, l))
				<-left
			})
		}
	}
}
