package fibergate_test

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
)

// Comments come while the call waits, and none afterwards.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for every, want := range map[time.Duration]int{0: 0, -1: 0, time.Minute: 0, 10 * time.Second: 3, time.Second: 35} {
			var sent bytes.Buffer
			w, boom := bufio.NewWriter(&sent), errors.New("boom")
			assert.Equal(t, boom, fibergate.Heartbeat(w, every, func() error {
				time.Sleep(35*time.Second + time.Millisecond)
				return boom
			}))
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.Equal(t, strings.Repeat(": queued\n", want), sent.String(), every)
		}
	})
}

type gone struct{ tries int }

func (g *gone) Write([]byte) (int, error) {
	g.tries++
	return 0, errors.New("broken pipe")
}

// A client that has left is not written to again, and a panic passes through.
func TestHeartbeatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(gone)
		assert.PanicsWithValue(t, "boom", func() {
			_ = fibergate.Heartbeat(bufio.NewWriter(to), time.Second, func() error {
				time.Sleep(time.Minute)
				panic("boom")
			})
		})
		assert.Equal(t, 1, to.tries)
	})
}
