package echogate_test

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

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	echogate "github.com/headgate-go/headgate/adapters/echo"
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

// upload sends n bytes to h and prints how it was answered.
func upload(h http.Handler, path string, n int) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(strings.Repeat("x", n))))
	fmt.Println(strings.TrimSpace(fmt.Sprint(answer.Code, " ", answer.Header().Get(gate.MarkerHeader))))
}

// One line puts the byte budget in front of a service. What the gate refuses while the
// body is read, the handler returns like any other error.
func ExampleMiddleware() {
	bytes := openBytes()
	defer bytes.Close()
	e := echo.New()
	e.Use(middleware.Recover(), echogate.Middleware(bytes))
	e.POST("/echo", func(c echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "text/plain", body)
	})

	upload(e, "/echo", 100)
	upload(e, "/echo", 2000)
	// Output:
	// 200
	// 413 payload_too_large
}

// Health checks pass unasked, refusals have the shape that OpenAI's clients read,
// and the access log sees each decision with the route that matched.
func ExampleWithConfig() {
	bytes := openBytes()
	defer bytes.Close()
	e := echo.New()
	e.Use(echogate.WithConfig(echogate.Config{
		Gate:    bytes,
		Skipper: func(c echo.Context) bool { return c.Path() == "/livez" },
		Format:  gate.OpenAI,
		OnDecision: func(d echogate.Decision) {
			fmt.Println("log:", d.Method, d.Route, d.Err)
		},
	}))
	e.POST("/livez", func(echo.Context) error { return nil })
	e.POST("/models/:model", func(echo.Context) error { return nil })

	upload(e, "/livez", 0)
	upload(e, "/models/m1", 100)
	upload(e, "/models/m2", 2000)
	upload(e, "/nowhere", 100)
	// Output:
	// 200
	// log: POST /models/:model <nil>
	// 200
	// log: POST /models/:model refused locally by admission: payload too large (limit 1024 bytes): send a smaller body, or raise HardMaxBodyBytes
	// 413 payload_too_large
	// log: POST unmatched <nil>
	// 404
}

// A configuration that comes from outside is checked without a panic.
func ExampleConfig_ToMiddleware() {
	c := echogate.DefaultConfig
	_, err := c.ToMiddleware()
	fmt.Println(err)
	// Output: echogate: Config.Gate is nil
}

// The app's error handler decides how a refusal looks. What it reads in it is Echo's
// own error, and the gate's below that.
func Example_errorHandler() {
	bytes := openBytes()
	defer bytes.Close()
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		var rej *gate.Rejection
		if errors.As(err, &rej) {
			_ = c.HTML(rej.Status(), "<p>come back later, or with less</p>")
			return
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	e.Use(echogate.Middleware(bytes))
	e.POST("/", func(echo.Context) error { return nil })

	upload(e, "/", 2000)
	// Output: 413 payload_too_large
}

// The body of a refusal can be the service's own in one place alone.
func ExampleConfig_onRefuse() {
	bytes := openBytes()
	defer bytes.Close()
	e := echo.New()
	e.Use(echogate.WithConfig(echogate.Config{
		Gate: bytes,
		OnRefuse: func(c echo.Context, rej *gate.Rejection) error {
			return c.JSON(rej.Status(), echo.Map{"error": "come back later, or with less: " + string(rej.Reason)})
		},
	}))
	e.POST("/", func(echo.Context) error { return nil })

	upload(e, "/", 2000)
	// Output: 413 payload_too_large
}

// A handler that knows what a request is worth asks a gate by itself. A middleware of
// this package, over any gate, answers the error that it returns.
func ExampleAcquire() {
	bytes, work := openBytes(), openBytes()
	defer bytes.Close()
	work.Close() // whoever asks is refused
	e := echo.New()
	e.Use(echogate.Middleware(bytes))
	e.POST("/", func(c echo.Context) error {
		if err := echogate.Acquire(c, work, gate.Request{Flow: "tenant-7"}); err != nil {
			return err
		}
		defer echogate.Release(c, work)
		return c.NoContent(http.StatusOK)
	})

	upload(e, "/", 100)
	// Output: 503 shutting_down
}

// A handler that has passed the body on gives its bytes back before it is done.
func ExampleRelease() {
	bytes := openBytes()
	defer bytes.Close()
	e := echo.New()
	e.Use(echogate.Middleware(bytes))
	e.POST("/", func(c echo.Context) error {
		_, _ = io.Copy(io.Discard, c.Request().Body)
		fmt.Println(bytes.Snapshot().InflightBytes)
		echogate.Release(c, bytes)
		fmt.Println(bytes.Snapshot().InflightBytes)
		return nil // after a long answer
	})

	upload(e, "/", 100)
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
	e := echo.New()
	e.POST("/", func(c echo.Context) error {
		err := echogate.Acquire(c, work, gate.Request{})
		defer echogate.Release(c, work)
		if err == nil {
			_, err = io.ReadAll(c.Request().Body)
		}
		if err == nil {
			err = echo.NewHTTPError(http.StatusBadRequest, "no such model")
		}
		if echogate.Refuse(c, err) {
			return nil
		}
		return err
	})

	upload(e, "/", 100)
	upload(e, "/", 2000)
	// Output:
	// 400
	// 413 payload_too_large
}

// Work that a handler starts inherits the request's leases, class and flow.
func ExampleContext() {
	bytes := openBytes()
	defer bytes.Close()
	e := echo.New()
	e.Use(echogate.Middleware(bytes))
	e.POST("/", func(c echo.Context) error {
		_, held := gate.LeaseOf(echogate.Context(c), bytes)
		fmt.Println(held)
		return nil
	})

	upload(e, "/", 100)
	// Output:
	// true
	// 200
}

// Whatever asks a gate behind this middleware asks as bulk work.
func ExampleSetClass() {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			echogate.SetClass(c, gate.Bulk)
			return next(c)
		}
	})
	e.POST("/reindex", func(c echo.Context) error {
		fmt.Println(gate.Request{}.In(echogate.Context(c)).Class)
		return nil
	})

	upload(e, "/reindex", 0)
	// Output:
	// bulk
	// 200
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

	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			tenant, ok := map[string]string{"Bearer key-of-7": "tenant-7"}[c.Request().Header.Get("Authorization")]
			if !ok {
				return echo.ErrUnauthorized
			}
			c.SetRequest(c.Request().WithContext(gate.WithFlow(echogate.Context(c), tenant, 1)))
			return next(c)
		}
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Use(middleware.Recover(), echogate.Middleware(hg.Bytes), authenticate)
	e.POST("/echo", func(c echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "text/plain", body)
	})
	e.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	url := "http://" + e.Listener.Addr().String() + "/echo"
	go func() { _ = e.Start("") }()

	for _, key := range []string{"Bearer key-of-7", "Bearer made up"} {
		req, _ := http.NewRequest(http.MethodPost, url, strings.NewReader("hello"))
		req.Header.Set("Authorization", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(hg.Shutdown(ctx, e.Shutdown))
	// Output:
	// 200 hello
	// 401 {"message":"Unauthorized"}
	// <nil>
}
