package gingate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate-go/headgate/adapters/gin"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestOnDecisionOfACutBody(t *testing.T) {
	gatetest.CutBodies(t, func(outer, inner gate.Gate, told func(gate.Gate, error)) func(io.Reader) int {
		gated := func(g gate.Gate) gin.HandlerFunc {
			return gingate.WithConfig(gingate.Config{Gate: g, OnDecision: func(d gingate.Decision) { told(g, d.Err) }})
		}
		a := app(func(c *gin.Context) {
			if _, err := io.Copy(io.Discard, c.Request.Body); !gingate.Refuse(c, err) {
				c.Status(http.StatusOK)
			}
		}, gated(outer), gated(inner))
		return func(body io.Reader) int {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://app/", body))
			return w.Code
		}
	})
}
