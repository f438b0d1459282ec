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
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

// I7: the hook also sees that the gate has cut a body that it had admitted, and a gate that
// has not is silent.
func TestOnDecisionOfACutBody(t *testing.T) {
	outer := budget(t, 1<<20)
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
	for size, cut := range map[int]bool{1 << 10: false, 2 << 20: true} {
		mu.Lock()
		seen = nil
		mu.Unlock()
		got := postBody(t, addr, "text/plain", io.MultiReader(strings.NewReader(strings.Repeat("x", size))))
		require.Equal(t, cut, got.StatusCode == http.StatusRequestEntityTooLarge)
		mu.Lock()
		require.NoError(t, seen[0])
		if cut {
			require.Len(t, seen, 2)
			require.ErrorIs(t, seen[1], gate.PayloadTooLarge)
		} else {
			require.Len(t, seen, 1)
		}
		mu.Unlock()
	}
}
