package prebody

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/adapters/fiber/internal/fast"
	"github.com/headgate-go/headgate/core/gate"
)

// Attach has app ask config.Gate for each request with a body, before that is read. It
// is called once, before app serves. The other fields mean what they mean to
// [fibergate.New]; of Route nil means that none is known.
//
// It is an error, and app stays as it is, when the configuration is one that
// fibergate.New refuses, when app streams bodies, when something hangs on its server's
// HeaderReceived already, and when the fasthttp in use is not as this package needs it.
func Attach(app *fiber.App, config fibergate.Config) error {
	srv := app.Server()
	switch err := fast.Check(config.Gate, config.Format); {
	case err != nil:
		return fmt.Errorf("prebody: %w", err)
	case srv.StreamRequestBody:
		return errors.New("prebody: the app has StreamRequestBody: its bodies are not buffered, fibergate alone will do")
	case srv.HeaderReceived != nil:
		return errors.New("prebody: the app's server has a HeaderReceived already")
	}
	if err := probe(contextOf); err != nil {
		return fmt.Errorf("prebody: this version of fasthttp cannot be used: %w", err)
	}
	a := &attached{Config: config, app: app, next: srv.Handler}
	srv.HeaderReceived, srv.Handler = a.received, a.serve
	return nil
}

// attached is what Attach has made.
type attached struct {
	fibergate.Config
	app    *fiber.App
	next   fasthttp.RequestHandler
	linger fast.Linger
}

type (
	heldKey    struct{}
	refusedKey struct{}
)

// held is a lease as a user value, which fasthttp closes when the response is finished
// or the request has broken off.
type held struct{ gate.Lease }

// Close implements io.Closer.
func (h *held) Close() error {
	h.Release()
	return nil
}

// received runs when a head has arrived. It waits for the gate.
func (a *attached) received(h *fasthttp.RequestHeader) (conf fasthttp.RequestConfig) {
	limit := a.app.Server().MaxRequestBodySize
	if limit <= 0 {
		limit = fasthttp.DefaultMaxRequestBodySize
	}
	n := fast.Length(h)
	if n == 0 || n > limit {
		return conf
	}
	if n < 0 {
		n = limit
	}
	rc := contextOf(h)
	c := a.app.AcquireCtx(rc)
	defer a.app.ReleaseCtx(c)
	if a.Next != nil && a.Next(c) {
		return conf
	}
	ctx := c.UserContext()
	q := a.request(c, int64(n)).In(ctx)
	if q.Flow = strings.Clone(q.Flow); q.Flow == "" && a.Flow == nil {
		q.Flow = fast.Peer(rc)
	}
	lease, err := fast.Ask(ctx, rc, a.Gate, q)
	if a.OnDecision != nil {
		a.OnDecision(fibergate.Decision{
			Context: c, Method: q.Method, Route: cmp.Or(q.Route, fast.Unmatched), Waited: fast.Waited(lease, err), Err: err,
		})
	}
	if err != nil {
		rc.SetUserValue(refusedKey{}, fast.Refusal(ctx, err))
		h.SetContentLength(0) // so that nothing of it is read, and serve gets it
		h.Del(fasthttp.HeaderExpect)
		return conf
	}
	c.SetUserContext(lease.In(ctx, a.Gate))
	rc.SetUserValue(heldKey{}, &held{lease})
	if lease.Waited() > 0 {
		conf.ReadTimeout = max(a.app.Server().ReadTimeout, 0)
	}
	return conf
}

// request puts c into the gate's words.
func (a *attached) request(c *fiber.Ctx, n int64) gate.Request {
	q := gate.Request{
		Method: fast.Method(c.Context()), Path: strings.Clone(c.Path()),
		Bytes: n, ContentType: string(c.Request().Header.ContentType()),
	}
	if a.Lane != nil {
		q.Lane = strings.Clone(a.Lane(c))
	}
	if a.Class != nil {
		q.Class = a.Class(c)
	}
	if a.Cost != nil {
		q.Cost = a.Cost(c)
	}
	if a.Flow != nil {
		q.Flow = a.Flow(c)
	}
	if a.Route != nil {
		q.Route = strings.Clone(a.Route(c))
	}
	return q
}

// serve runs when a request has been read, or refused.
func (a *attached) serve(rc *fasthttp.RequestCtx) {
	if rej, ok := rc.UserValue(refusedKey{}).(*gate.Rejection); ok {
		a.refuse(rc, rej)
		return
	}
	h, held := rc.UserValue(heldKey{}).(*held)
	if !held {
		a.next(rc)
		return
	}
	returned := false
	defer func() {
		if !returned || fast.Finished(rc) {
			h.Release()
		} else {
			fast.Guard(rc, h, h.Lease)
		}
	}()
	a.next(rc)
	returned = true
}

// refuse answers rej, with the body still on its way.
func (a *attached) refuse(rc *fasthttp.RequestCtx, rej *gate.Rejection) {
	c := a.app.AcquireCtx(rc)
	defer a.app.ReleaseCtx(c)
	err := fast.Refuse(c, rej, a.Format, a.OnRefuse)
	if err != nil && a.app.ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError) // as Fiber does
	}
	a.linger.Close(rc, max(a.app.Server().WriteTimeout, 0), func() {})
}
