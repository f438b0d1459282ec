package httpgate_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gatetest"
)

func TestHeartbeat(t *testing.T) {
	gatetest.Heartbeat(t, func(every time.Duration, wait func() error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			httpgate.Heartbeat(w, r, every, func(w http.ResponseWriter) {
				assert.True(t, httpgate.Refuse(w, r, wait()))
			})
		})
	})
}

// A panic ends the comments and passes through.
func TestHeartbeatPanics(t *testing.T) {
	w, boom := httptest.NewRecorder(), errors.New("boom")
	assert.PanicsWithValue(t, boom, func() {
		httpgate.Heartbeat(w, httptest.NewRequest(http.MethodGet, "/", nil), time.Nanosecond, func(http.ResponseWriter) { panic(boom) })
	})
}
