package fibergate_test

import (
	"io"
	"testing"

	"github.com/gofiber/fiber/v2"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestOnDecisionOfACutBody(t *testing.T) {
	gatetest.CutBodies(t, func(outer, inner gate.Gate, told func(gate.Gate, error)) func(io.Reader) int {
		gated := func(g gate.Gate) fiber.Handler {
			return fibergate.New(fibergate.Config{Gate: g, OnDecision: func(d fibergate.Decision) { told(g, d.Err) }})
		}
		a := fiber.New(streaming())
		a.Post("/", gated(outer), gated(inner), func(c *fiber.Ctx) error {
			_, err := io.Copy(io.Discard, fibergate.Body(c))
			return err
		})
		addr := serve(t, a)
		return func(body io.Reader) int { return postBody(t, addr, "text/plain", body).StatusCode }
	})
}
