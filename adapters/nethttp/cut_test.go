package httpgate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestOnDecisionOfACutBody(t *testing.T) {
	gatetest.CutBodies(t, func(outer, inner gate.Gate, told func(gate.Gate, error)) func(io.Reader) int {
		gated := func(g gate.Gate) func(http.Handler) http.Handler {
			return httpgate.WithConfig(httpgate.Config{Gate: g, OnDecision: func(d httpgate.Decision) { told(g, d.Err) }})
		}
		app := gated(outer)(gated(inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			httpgate.Refuse(w, r, err)
		})))
		return func(body io.Reader) int {
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://app/", body))
			return w.Code
		}
	})
}
