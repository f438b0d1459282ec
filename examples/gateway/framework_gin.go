package main

import (
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
)

// ginGonic serves the routes with Gin. There is no gin.Recovery: net/http recovers by
// itself, and a cut answer must not look complete.
func ginGonic(g *gateway) server {
	if gin.Mode() != gin.ReleaseMode {
		gin.SetMode(gin.ReleaseMode) // the others print to standard output, which has one line
	}
	r := gin.New()
	r.HandleMethodNotAllowed = true
	r.RedirectTrailingSlash = false
	r.UseRawPath = true // /v1%2fmessages is no /v1/messages
	if g.hg != nil {
		r.Use(g.ginBytes())
	}
	r.Use(func(c *gin.Context) { answerFirst(c.Writer, c.Request, ginRoute(c)) })
	r.NoMethod(ginNoMethod)

	r.POST(echoPath, ginEcho)
	reports := g.reports()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for path, probe := range g.probes() {
			r.Handle(method, path, func(c *gin.Context) {
				status, text := probe()
				c.String(status, text)
			})
		}
		for path, h := range reports {
			r.Handle(method, path, gin.WrapH(h))
		}
	}
	refuse := func(_ http.ResponseWriter, r *http.Request, err error) bool {
		return gingate.Refuse(nativeOf[*gin.Context](r), err)
	}
	for path, h := range g.calls(refuse) {
		r.POST(path, ginCall(h))
	}
	return g.newServer(r)
}

// ginBytes puts the byte gate in front of all routes.
func (g *gateway) ginBytes() gin.HandlerFunc {
	var behind [formats]gin.HandlerFunc
	for f := range behind {
		behind[f] = gingate.WithConfig(gingate.Config{
			Gate: g.hg.Bytes, Format: gate.Format(f), Route: ginRoute,
			Skip:       func(c *gin.Context) bool { return isReport(c.Request.URL.Path) },
			OnDecision: func(d gingate.Decision) { g.decided(d.Method, d.Route, d.Waited, d.Err) },
		})
	}
	return func(c *gin.Context) { behind[formatOf(c.Request.URL.Path)](c) }
}

func ginRoute(c *gin.Context) string { return pattern(c.Request.Method, c.FullPath()) }

// ginCall passes a call to h, and early answers by Gin's writer, which keeps them.
func ginCall(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		w := &early{c.Writer, c.Writer}
		if under, ok := c.Writer.(interface{ Unwrap() http.ResponseWriter }); ok {
			w.server = under.Unwrap()
		}
		h.ServeHTTP(w, withNative(c.Request, c))
	}
}

// ginNoMethod says which methods there are. Gin before 1.10 does not.
func ginNoMethod(c *gin.Context) {
	path := c.Request.URL.Path
	if a, ok := apiAt(path); ok {
		onlyPost(a).ServeHTTP(c.Writer, c.Request)
		return
	}
	c.Header("Allow", allowed(path))
}

// ginEcho reads the whole body into memory, which is what the byte gate is for.
func ginEcho(c *gin.Context) {
	pause, err := parseHold(c.Query("hold"))
	if err != nil {
		badRequest(c.Writer, c.Request, err.Error())
		return
	}
	body, err := io.ReadAll(c.Request.Body)
	if gingate.Refuse(c, err) {
		return // too large, too slow, or no room to grow
	}
	if err != nil {
		badRequest(c.Writer, c.Request, "the body ends early or is not well-formed")
		return
	}
	if err := hold(gingate.Context(c), pause); err != nil {
		panic(http.ErrAbortHandler) // the client has left: close, do not answer 200
	}
	writeJSON(c.Writer, http.StatusOK, digest(body))
}
