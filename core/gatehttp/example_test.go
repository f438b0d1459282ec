package gatehttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

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

// A handler that has passed the body on lets go of the lease before its answer is over.
func ExampleRelease() {
	g := new(one)
	app := middleware(g, func(x *exchange) {
		_, _ = io.Copy(io.Discard, x.r.Body)
		fmt.Println(g.held)
		gatehttp.Release(x.r, g)
		fmt.Println(g.held)
		// a long answer follows
	})
	app(&exchange{httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))})
	// Output:
	// true
	// false
}

// An adapter looks at its configuration when it is made, not when the first request comes.
func ExampleCheck() {
	var forgotten *one
	fmt.Println(gatehttp.Check(forgotten, gate.Problem))
	fmt.Println(gatehttp.Check(new(one), gate.OpenAI))
	// Output:
	// Config.Gate is nil
	// <nil>
}

// A client that waits for its turn sees that somebody is there: comments, until the
// handler answers.
func ExampleHeartbeat() {
	turn := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heart := gatehttp.Heartbeat(w, r, time.Millisecond)
		defer heart.Close()
		<-turn // an Acquire that waits
		heart.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(heart, "data: hello\n\n")
	}))
	defer srv.Close()

	resp, err := http.Get(srv.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	fmt.Println(resp.Status, strings.HasPrefix(lines.Text(), ":"))
	close(turn)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// 200 OK true
	// data: hello
}
