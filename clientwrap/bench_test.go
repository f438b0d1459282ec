package clientwrap_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/stretchr/testify/require"
)

// BenchmarkTransport is one exchange over a base that does nothing, its body read to
// its end, under a context that can end: all of it is what the wrapper costs.
func BenchmarkTransport(b *testing.B) {
	base := newFree(empty{})
	for _, bm := range []struct {
		name   string
		config *clientwrap.Config
	}{
		{"headgate", &clientwrap.Config{}},
		{"headgate-maxhold", &clientwrap.Config{MaxHold: time.Hour}},
		{"bare", nil},
	} {
		b.Run(bm.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			req, buf := request(b, ctx, nil), make([]byte, 16)
			var rt http.RoundTripper = base
			if bm.config != nil {
				rt = clientwrap.NewTransport(base, slots(b, 8), *bm.config)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := exchange(rt, req, buf); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, ctx.Err())
		})
	}
}
