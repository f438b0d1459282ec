// Command fiber is a small service on Fiber behind headgate: bytes are admitted before
// anybody is authenticated, the tenant's lane stands behind that, urgent and bulk calls go
// to a back end, and the end is orderly.
package main

import (
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gofiber/fiber/v2/middleware/recover"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/examples/apps/internal/app"
)

func authenticate(c *fiber.Ctx) error {
	tenant, ok := app.TenantOf(c.Get(fiber.HeaderAuthorization))
	if !ok {
		return fiber.ErrUnauthorized
	}
	c.SetUserContext(gate.WithFlow(fibergate.Context(c), tenant, 1))
	return c.Next()
}

func main() {
	hg := app.Open()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})}
	handle := func(class gate.Class) fiber.Handler {
		return func(c *fiber.Ctx) error {
			resp, err := app.Forward(gate.WithClass(fibergate.Context(c), class), client, fibergate.Body(c))
			if fibergate.Refuse(c, err) {
				return nil
			}
			if err != nil {
				return fiber.ErrBadGateway
			}
			c.Set(fiber.HeaderContentType, resp.Header.Get("Content-Type"))
			return c.Status(resp.StatusCode).SendStream(resp.Body) // closes it
		}
	}
	f := fiber.New(fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true, DisableStartupMessage: true, IdleTimeout: time.Minute})
	f.Use(recover.New())
	page, metrics := app.Reports(hg)
	defer page.Close()
	f.Get("/headgate/*", adaptor.HTTPHandler(page)) // before the gates: the reports ask none
	f.Get("/metrics", adaptor.HTTPHandler(metrics))
	f.Use(fibergate.New(fibergate.Config{Gate: hg.Bytes}), authenticate, fibergate.New(fibergate.Config{Gate: hg.Tenants}))
	f.Get("/status", func(c *fiber.Ctx) error { return c.JSON(hg.Snapshot()) })
	f.Post("/chat", handle(gate.Interactive))
	f.Post("/batch", handle(gate.Bulk))
	go func() {
		if err := f.Listen(app.Addr()); err != nil { // nil when it is shut down
			app.Served(err)
		}
	}()
	app.ShutDown(hg, f.ShutdownWithContext)
}
