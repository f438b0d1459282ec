package fibergate_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
)

// The client of a stream hears that it is queued until there is a slot for its call.
func ExampleHeartbeat() {
	slot := make(chan struct{}) // taken, for now
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/", func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderContentType, "text/event-stream")
		c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
			_ = fibergate.Heartbeat(w, time.Millisecond, func() error {
				<-slot
				return nil
			})
			fmt.Fprint(w, "data: hello\n\n")
		})
		return nil
	})
	l := fasthttputil.NewInmemoryListener()
	go func() { _ = app.Listener(l) }()
	defer app.Shutdown() //nolint:errcheck // an example

	client := fasthttp.Client{StreamResponseBody: true, Dial: func(string) (net.Conn, error) { return l.Dial() }}
	var req fasthttp.Request
	var resp fasthttp.Response
	req.SetRequestURI("http://app/")
	if err := client.Do(&req, &resp); err != nil {
		fmt.Println(err)
		return
	}
	in := bufio.NewScanner(resp.BodyStream())
	in.Scan()
	fmt.Println(in.Text())
	close(slot)
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "data:") {
			fmt.Println(in.Text())
		}
	}
	// Output:
	// : queued
	// data: hello
}
