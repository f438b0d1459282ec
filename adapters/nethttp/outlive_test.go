package httpgate_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// A reader that goes on after its handler has returned, as a transport may whose
// back end has answered early, touches nothing of the server's: neither under the
// middleware nor after Acquire.
func TestReaderOutlivesHandler(t *testing.T) {
	for _, middleware := range []bool{true, false} {
		eachProtocol(t, func(t *testing.T, http2 bool) {
			b, err := admission.New(admission.DefaultConfig())
			require.NoError(t, err)
			defer b.Close()
			over, read := make(chan struct{}), make(chan any, 1)
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r, err := httpgate.Acquire(w, r, b, gate.Request{})
				assert.NoError(t, err)
				defer httpgate.Release(r, b)
				go func() {
					defer func() { read <- recover() }()
					<-over
					_, _ = io.Copy(io.Discard, r.Body)
				}()
				w.WriteHeader(http.StatusNoContent)
			})
			if middleware {
				h = httpgate.New(b)(h)
			}
			srv, _ := serve(t, http2, h)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, &repeat{n: 10})
			require.NoError(t, err)
			resp, err := srv.Client().Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			eventually(t, func() bool { return b.Snapshot().Inflight == 0 }, "lease leaked")
			close(over)
			assert.Nil(t, <-read, "the late reader panicked: it would end the process")
		})
	}
}
