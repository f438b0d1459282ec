package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"
	"github.com/zeromicro/go-zero/rest/handler"
)

// room is what a middleware is told. Each takes of it what it has.
type room struct {
	limit   int           // requests inside at once
	backlog int           // requests that wait
	wait    time.Duration // of each
}

// peer is a library's middleware, set up as its documentation says.
type peer struct {
	name string
	wrap func(room) func(http.Handler) http.Handler
}

// peers are all there are. The storm knows them by the same names.
func peers() []peer {
	return []peer{
		{"chi", func(r room) func(http.Handler) http.Handler {
			return middleware.ThrottleBacklog(r.limit, r.backlog, r.wait)
		}},
		// The bulkhead, not the adaptive limiter: a limit that is there for memory must
		// not follow latency, and the adaptive one would only ever choose less.
		{"failsafe", func(r room) func(http.Handler) http.Handler {
			b := bulkhead.NewBuilder[*http.Response](uint(r.limit)).WithMaxWaitTime(r.wait).Build() //nolint:bodyclose // the type only, no response is made
			return func(next http.Handler) http.Handler { return failsafehttp.NewHandler(next, b) }
		}},
		{"gozero", goZero},
	}
}

// goZero stacks the two handlers as go-zero's own server does: the count around the
// shedder, which refuses while the CPU is busier than its default threshold.
func goZero(r room) func(http.Handler) http.Handler {
	// Its lines for each refusal and minute would be work that the others do not do.
	logx.Disable()
	stat.DisableLog()
	load.DisableLog()
	conns := handler.MaxConnsHandler(r.limit)
	shed := handler.SheddingHandler(load.NewAdaptiveShedder(), stat.NewMetrics("app"))
	return func(next http.Handler) http.Handler { return conns(shed(next)) }
}

func find(name string) (peer, error) {
	for _, p := range peers() {
		if p.name == name {
			return p, nil
		}
	}
	return peer{}, fmt.Errorf("-with is %q: want one of %s", name, names())
}

func names() string {
	var all []string
	for _, p := range peers() {
		all = append(all, p.name)
	}
	return strings.Join(all, ", ")
}
