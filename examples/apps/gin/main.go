// Command gin is a small service on Gin behind headgate: bytes are admitted before
// anybody is authenticated, the tenant's lane stands behind that, urgent and bulk calls go
// to a back end, and the end is orderly.
package main

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/examples/apps/internal/app"
)

func authenticate(c *gin.Context) {
	tenant, ok := app.TenantOf(c.GetHeader("Authorization"))
	if !ok {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Request = c.Request.WithContext(gate.WithFlow(gingate.Context(c), tenant, 1))
}

func main() {
	hg := app.Open()
	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})}
	handle := func(class gate.Class) gin.HandlerFunc {
		return func(c *gin.Context) {
			resp, err := app.Forward(gate.WithClass(gingate.Context(c), class), client, c.Request.Body)
			if gingate.Refuse(c, err) {
				return
			}
			if err != nil {
				c.AbortWithStatus(http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			c.DataFromReader(resp.StatusCode, resp.ContentLength, resp.Header.Get("Content-Type"), resp.Body, nil)
		}
	}
	page, metrics := app.Reports(hg)
	defer page.Close()
	r := gin.New()
	r.Use(gin.Recovery())
	r.GET("/headgate/*report", gin.WrapH(page)) // before the gates: the reports ask none
	r.GET("/metrics", gin.WrapH(metrics))
	r.Use(gingate.New(hg.Bytes), authenticate, gingate.New(hg.Tenants))
	r.GET("/status", func(c *gin.Context) { c.JSON(http.StatusOK, hg.Snapshot()) })
	r.POST("/chat", handle(gate.Interactive))
	r.POST("/batch", handle(gate.Bulk))
	srv := &http.Server{Addr: app.Addr(), ReadHeaderTimeout: 10 * time.Second, Handler: r}
	go func() { app.Served(srv.ListenAndServe()) }()
	app.ShutDown(hg, srv.Shutdown)
}
