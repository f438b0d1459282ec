package gatehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// exchange is what the handlers of some framework get.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

type handler func(*exchange)

// middleware is an adapter for that framework.
func middleware(g gate.Gate, next handler) handler {
	return func(x *exchange) {
		q := gate.Request{Route: x.r.Pattern}
		a, err := gatehttp.Ask(x.w, x.r, g, &q, x.r.RemoteAddr)
		defer a.Leave()
		if err != nil {
			refuse(x, gatehttp.Refusal(x.r, err))
			return
		}
		x.r = a.Enter(gate.Problem)
		next(x)
	}
}

func refuse(x *exchange, rej *gate.Rejection) {
	if !gatehttp.Prepare(x.w, x.r, rej) {
		return // the client has left
	}
	body, contentType := rej.Render(gatehttp.FormatOf(x.r))
	x.w.Header().Set("Content-Type", contentType)
	x.w.WriteHeader(rej.Status())
	_, _ = x.w.Write(body)
}

// An adapter for a framework of one's own.
func Example() {
	g := new(one) // admits a request at a time
	app := middleware(g, func(x *exchange) {
		n, _ := io.Copy(io.Discard, x.r.Body)
		fmt.Fprintf(x.w, "%d bytes", n)
	})
	send := func() {
		answer := httptest.NewRecorder()
		app(&exchange{answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))})
		fmt.Println(strings.TrimSpace(fmt.Sprintln(answer.Code, answer.Header().Get("Content-Type"), answer.Header().Get(gate.MarkerHeader))))
	}

	send()
	lease, _ := g.Acquire(context.Background(), gate.Request{})
	send()
	lease.Release()
	// Output:
	// 200 text/plain; charset=utf-8
	// 503 application/problem+json queue_full
}

// A handler that asks by itself goes on with the request that Acquire returns.
func ExampleAcquire() {
	g := new(one)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r, err := gatehttp.Acquire(w, r, g, gate.Request{Flow: "tenant-7"})
	fmt.Println(g.held, err)
	gatehttp.Release(r, g)
	fmt.Println(g.held)
	// Output:
	// true <nil>
	// false
}
