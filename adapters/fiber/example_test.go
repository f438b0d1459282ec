package fibergate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// openBytes opens the byte gate of the examples: bodies of 1 KiB at most.
func openBytes() *admission.Budget {
	c := admission.DefaultConfig()
	c.HardMaxBodyBytes = 1 << 10
	b, err := admission.New(c)
	if err != nil {
		panic(err)
	}
	return b
}

// newApp is an app with the setup that protects memory.
func newApp() *fiber.App {
	return fiber.New(fiber.Config{
		StreamRequestBody: true, DisablePreParseMultipartForm: true, DisableStartupMessage: true,
	})
}

// upload sends n bytes to app and prints how it was answered.
func upload(app *fiber.App, path string, n int) {
	answer, err := app.Test(httptest.NewRequest(http.MethodPost, path, strings.NewReader(strings.Repeat("x", n))))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	fmt.Println(strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", answer.Header.Get(gate.MarkerHeader))))
}

// One line puts the byte budget in front of a service. What the gate refuses while the
// body is read, the handler returns like any other error.
func ExampleNew() {
	bytes := openBytes()
	defer bytes.Close()
	app := newApp()
	app.Use(recover.New(), fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/echo", func(c *fiber.Ctx) error {
		body, err := io.ReadAll(fibergate.Body(c))
		if err != nil {
			return err
		}
		return c.Send(body)
	})

	upload(app, "/echo", 100)
	upload(app, "/echo", 2000)
	// Output:
	// 200
	// 413 payload_too_large
}

// Health checks pass unasked, refusals have the shape that OpenAI's clients read, and the
// access log sees each decision. At a route the middleware knows its pattern.
func ExampleConfig() {
	bytes := openBytes()
	defer bytes.Close()
	app := newApp()
	gated := fibergate.New(fibergate.Config{
		Gate:   bytes,
		Next:   func(c *fiber.Ctx) bool { return c.Path() == "/livez" },
		Format: gate.OpenAI,
		OnDecision: func(d fibergate.Decision) {
			fmt.Println("log:", d.Method, d.Route, d.Err)
		},
	})
	app.Post("/models/:model", gated, func(*fiber.Ctx) error { return nil })
	app.Use(gated)
	app.Post("/livez", func(*fiber.Ctx) error { return nil })

	upload(app, "/livez", 0)
	upload(app, "/models/m1", 100)
	upload(app, "/models/m2", 2000)
	upload(app, "/nowhere", 100)
	// Output:
	// 200
	// log: POST /models/:model <nil>
	// 200
	// log: POST /models/:model refused locally by admission: payload too large (limit 1024 bytes): send a smaller body, or raise HardMaxBodyBytes
	// 413 payload_too_large
	// log: POST unmatched <nil>
	// 404
}

// The app's ErrorHandler decides how a refusal looks.
func Example_errorHandler() {
	bytes := openBytes()
	defer bytes.Close()
	app := fiber.New(fiber.Config{
		StreamRequestBody: true, DisablePreParseMultipartForm: true,
		ErrorHandler: func(c *fiber.Ctx, err error) error {
			var rej *gate.Rejection
			if errors.As(err, &rej) { // and a *fiber.Error with its status
				return c.Status(rej.Status()).Type("html").SendString("<p>come back later, or with less</p>")
			}
			return c.SendStatus(fiber.StatusInternalServerError)
		},
	})
	app.Use(fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/", func(*fiber.Ctx) error { return io.ErrUnexpectedEOF })

	upload(app, "/", 100)
	upload(app, "/", 2000)
	// Output:
	// 500
	// 413 payload_too_large
}

// The body of a refusal can be the service's own in one place alone.
func ExampleConfig_onRefuse() {
	bytes := openBytes()
	defer bytes.Close()
	app := newApp()
	app.Use(fibergate.New(fibergate.Config{
		Gate: bytes,
		OnRefuse: func(c *fiber.Ctx, rej *gate.Rejection) error {
			return c.JSON(fiber.Map{"error": "come back later, or with less: " + string(rej.Reason)})
		},
	}))
	app.Post("/", func(*fiber.Ctx) error { return nil })

	upload(app, "/", 2000)
	// Output: 413 payload_too_large
}

// A handler that knows what a request is worth asks a gate by itself. A middleware of
// this package, over any gate, answers the error that it returns.
func ExampleAcquire() {
	bytes, work := openBytes(), openBytes()
	defer bytes.Close()
	work.Close() // whoever asks is refused
	app := newApp()
	app.Use(fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/", func(c *fiber.Ctx) error {
		if err := fibergate.Acquire(c, work, gate.Request{Flow: "tenant-7"}); err != nil {
			return err
		}
		defer fibergate.Release(c, work)
		return c.SendStatus(http.StatusOK)
	})

	upload(app, "/", 100)
	// Output: 503 shutting_down
}

// A handler that has passed the body on gives its bytes back before it is done.
func ExampleRelease() {
	bytes := openBytes()
	defer bytes.Close()
	app := newApp()
	app.Use(fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/", func(c *fiber.Ctx) error {
		_, _ = io.Copy(io.Discard, fibergate.Body(c))
		fmt.Println(bytes.Snapshot().InflightBytes)
		fibergate.Release(c, bytes)
		fmt.Println(bytes.Snapshot().InflightBytes)
		return nil // after a long answer
	})

	upload(app, "/", 100)
	// Output:
	// 100
	// 0
	// 200
}

// Where no middleware of this package stands in front, Refuse answers. Errors that are
// no gate's stay the handler's.
func ExampleRefuse() {
	work := openBytes()
	defer work.Close()
	app := newApp()
	app.Post("/", func(c *fiber.Ctx) error {
		err := fibergate.Acquire(c, work, gate.Request{})
		defer fibergate.Release(c, work)
		if err == nil {
			_, err = io.ReadAll(fibergate.Body(c))
		}
		if err == nil {
			err = fiber.NewError(http.StatusBadRequest, "no such model")
		}
		if fibergate.Refuse(c, err) {
			return nil
		}
		return err
	})

	upload(app, "/", 100)
	upload(app, "/", 2000)
	// Output:
	// 400
	// 413 payload_too_large
}

// The body is read under the lease: what of it has been read is charged, and so it ends
// at the gate's cap even where the client has announced no length.
func ExampleBody() {
	bytes := openBytes()
	defer bytes.Close()
	app := newApp()
	app.Use(fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/", func(c *fiber.Ctx) error {
		n, err := io.Copy(io.Discard, fibergate.Body(c))
		fmt.Println(n, err, bytes.Snapshot().InflightBytes)
		return err
	})

	upload(app, "/", 1000)
	// Output:
	// 1000 <nil> 1000
	// 200
}

// Work that a handler starts inherits the request's leases, class and flow.
func ExampleContext() {
	bytes := openBytes()
	defer bytes.Close()
	app := newApp()
	app.Use(fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/", func(c *fiber.Ctx) error {
		_, held := gate.LeaseOf(fibergate.Context(c), bytes)
		fmt.Println(held)
		return nil
	})

	upload(app, "/", 100)
	// Output:
	// true
	// 200
}

// Whatever asks a gate behind this middleware asks as bulk work.
func ExampleSetClass() {
	app := newApp()
	app.Use(func(c *fiber.Ctx) error {
		fibergate.SetClass(c, gate.Bulk)
		return c.Next()
	})
	app.Post("/reindex", func(c *fiber.Ctx) error {
		fmt.Println(gate.Request{}.In(fibergate.Context(c)).Class)
		return nil
	})

	upload(app, "/reindex", 0)
	// Output:
	// bulk
	// 200
}

// A handler that streams the body on to a back end and its answer back. The call carries
// the request's leases, class and flow: a transport of package clientwrap takes its turn
// among them, and whatever it refuses is answered like a refusal of the middleware.
func Example_forward() {
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "the back end got %d bytes for %s", n, r.URL.Path)
	}))
	defer backEnd.Close()
	bytes := openBytes()
	defer bytes.Close()
	client := backEnd.Client() // its Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})

	handle := func(class gate.Class) fiber.Handler {
		return func(c *fiber.Ctx) error {
			ctx := gate.WithClass(fibergate.Context(c), class)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, backEnd.URL+c.Path(), fibergate.Body(c))
			if err != nil {
				return err
			}
			resp, err := client.Do(req) //nolint:bodyclose // SendStream does
			if fibergate.Refuse(c, err) {
				return nil
			}
			if err != nil {
				return fiber.ErrBadGateway
			}
			return c.Status(resp.StatusCode).SendStream(resp.Body) // closes it
		}
	}
	app := newApp()
	app.Use(recover.New(), fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/chat", handle(gate.Interactive))
	app.Post("/batch", handle(gate.Bulk))

	for _, path := range []string{"/chat", "/batch"} {
		answer, err := app.Test(httptest.NewRequest(http.MethodPost, path, strings.NewReader("hello")))
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		fmt.Println(answer.StatusCode, string(text))
	}
	// Output:
	// 200 the back end got 5 bytes for /chat
	// 200 the back end got 5 bytes for /batch
}

// A whole service: bytes are admitted before anybody knows who is asking,
// authentication puts the tenant into the context, and shutdown refuses who waits,
// stops the server and waits for who runs.
func Example() {
	config := headgate.DefaultConfig()
	config.Logger = slog.New(slog.DiscardHandler)
	hg, err := headgate.Open(config)
	if err != nil {
		fmt.Println(err)
		return
	}

	authenticate := func(c *fiber.Ctx) error {
		tenant, ok := map[string]string{"Bearer key-of-7": "tenant-7"}[c.Get(fiber.HeaderAuthorization)]
		if !ok {
			return fiber.ErrUnauthorized
		}
		c.SetUserContext(gate.WithFlow(fibergate.Context(c), tenant, 1))
		return c.Next()
	}
	app := fiber.New(fiber.Config{
		StreamRequestBody: true, DisablePreParseMultipartForm: true, DisableStartupMessage: true,
	})
	app.Use(recover.New(), fibergate.New(fibergate.Config{Gate: hg.Bytes}), authenticate)
	app.Post("/echo", func(c *fiber.Ctx) error {
		body, err := io.ReadAll(fibergate.Body(c))
		if err != nil {
			return err
		}
		return c.Send(body)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = app.Listener(l) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, key := range []string{"Bearer key-of-7", "Bearer made up"} {
		req, _ := http.NewRequest(http.MethodPost, "http://"+l.Addr().String()+"/echo", strings.NewReader("hello"))
		req.Header.Set("Authorization", key)
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, string(body))
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(hg.Shutdown(ctx, app.ShutdownWithContext))
	// Output:
	// 200 hello
	// 401 Unauthorized
	// <nil>
}
