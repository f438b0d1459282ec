package echogate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	echogate "github.com/headgate-go/headgate/adapters/echo"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestOnDecisionOfACutBody(t *testing.T) {
	gatetest.CutBodies(t, func(outer, inner gate.Gate, told func(gate.Gate, error)) func(io.Reader) int {
		gated := func(g gate.Gate) echo.MiddlewareFunc {
			return echogate.WithConfig(echogate.Config{Gate: g, OnDecision: func(d echogate.Decision) { told(g, d.Err) }})
		}
		a := app(func(c echo.Context) error {
			if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
				return err
			}
			return c.NoContent(http.StatusOK)
		}, gated(outer), gated(inner))
		return func(body io.Reader) int {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://app/", body))
			return w.Code
		}
	})
}
