package prebody_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v2"

	fibergate "github.com/headgate-go/headgate/adapters/fiber"
	"github.com/headgate-go/headgate/adapters/fiber/prebody"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// An app that lets Fiber read bodies whole, of 1 KiB at most. The gate is asked before
// one is read; the middleware is for requests without a body, and finds the lease of
// the others.
func ExampleAttach() {
	config := admission.DefaultConfig()
	config.HardMaxBodyBytes = 1 << 10
	bytes, err := admission.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bytes.Close()
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	if err := prebody.Attach(app, fibergate.Config{Gate: bytes}); err != nil {
		fmt.Println(err)
		return
	}
	app.Use(fibergate.New(fibergate.Config{Gate: bytes}))
	app.Post("/", func(c *fiber.Ctx) error {
		fmt.Println("in memory:", len(c.Body()))
		return nil
	})

	for _, n := range []int{100, 2000} {
		answer, err := app.Test(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", n))))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = answer.Body.Close()
		fmt.Println(strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", answer.Header.Get(gate.MarkerHeader))))
	}
	// Output:
	// in memory: 100
	// 200
	// 413 payload_too_large
}
