package fibergate_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// I7: the hook also sees that the gate has cut a body that it had admitted, and a gate that
// has not is silent.
func TestOnDecisionOfACutBody(t *testing.T) {
	cfg := admission.DefaultConfig()
	cfg.MaxInflightBytes, cfg.HardMaxBodyBytes = 8<<20, 1<<20
	outer, err := admission.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Zero(t, outer.Snapshot().InflightBytes)
		outer.Close()
	})
	var mu sync.Mutex
	var seen []error
	hook := func(d fibergate.Decision) { mu.Lock(); defer mu.Unlock(); seen = append(seen, d.Err) }
	a := fiber.New(streaming())
	a.Post("/",
		fibergate.New(fibergate.Config{Gate: outer, OnDecision: hook}),
		fibergate.New(fibergate.Config{Gate: &gatetest.Slots{Limit: 1}, OnDecision: func(d fibergate.Decision) {
			if d.Err != nil {
				t.Errorf("the inner gate: %v", d.Err)
			}
		}}),
		func(c *fiber.Ctx) error {
			_, err := io.Copy(io.Discard, fibergate.Body(c))
			return err
		})
	addr := serve(t, a)
	for _, tc := range []struct {
		size   int
		held   int64 // of the budget of 8 MiB, by others
		status int
		why    error
	}{
		{1 << 10, 0, http.StatusOK, nil},
		{2 << 20, 0, http.StatusRequestEntityTooLarge, gate.PayloadTooLarge},
		{512 << 10, 8<<20 - 128<<10, http.StatusServiceUnavailable, gate.AdmissionBusy}, // no room to grow
	} {
		var held []gate.Lease
		for left := tc.held; left > 0; left -= 1 << 20 {
			lease, err := outer.Acquire(t.Context(), gate.Request{Bytes: min(left, 1<<20)})
			require.NoError(t, err)
			held = append(held, lease)
		}
		mu.Lock()
		seen = nil
		mu.Unlock()
		got := postBody(t, addr, "text/plain", io.MultiReader(strings.NewReader(strings.Repeat("x", tc.size))))
		require.Equal(t, tc.status, got.StatusCode)
		mu.Lock()
		require.NoError(t, seen[0])
		if tc.why == nil {
			require.Len(t, seen, 1)
		} else {
			require.Len(t, seen, 2)
			require.ErrorIs(t, seen[1], tc.why)
		}
		mu.Unlock()
		for _, lease := range held {
			lease.Release()
		}
	}
}
