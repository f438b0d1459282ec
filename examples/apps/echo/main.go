// Command echo is a small service on Echo behind headgate: bytes are admitted before
// anybody is authenticated, the tenant's lane stands behind that, urgent and bulk calls go
// to a back end, and the end is orderly.
package main

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/examples/apps/internal/app"
)

func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		tenant, ok := app.TenantOf(c.Request().Header.Get("Authorization"))
		if !ok {
			return echo.ErrUnauthorized
		}
		c.SetRequest(c.Request().WithContext(gate.WithFlow(echogate.Context(c), tenant, 1)))
		return next(c)
	}
}

func main() {
	hg := app.Open()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})}
	handle := func(class gate.Class) echo.HandlerFunc {
		return func(c echo.Context) error {
			resp, err := app.Forward(gate.WithClass(echogate.Context(c), class), client, c.Request().Body)
			if echogate.Refuse(c, err) {
				return nil
			}
			if err != nil {
				return echo.NewHTTPError(http.StatusBadGateway)
			}
			defer resp.Body.Close()
			return c.Stream(resp.StatusCode, resp.Header.Get("Content-Type"), resp.Body)
		}
	}
	e := echo.New()
	e.Server.ReadHeaderTimeout = 10 * time.Second
	e.Use(middleware.Recover())
	page, metrics := app.Reports(hg)
	defer page.Close()
	e.GET("/headgate/*", echo.WrapHandler(page)) // the reports ask no gate
	e.GET("/metrics", echo.WrapHandler(metrics))
	gated := e.Group("", echogate.Middleware(hg.Bytes), authenticate, echogate.Middleware(hg.Tenants))
	gated.GET("/status", func(c echo.Context) error { return c.JSON(http.StatusOK, hg.Snapshot()) })
	gated.POST("/chat", handle(gate.Interactive))
	gated.POST("/batch", handle(gate.Bulk))
	go func() { app.Served(e.Start(app.Addr())) }()
	app.ShutDown(hg, e.Shutdown)
}
