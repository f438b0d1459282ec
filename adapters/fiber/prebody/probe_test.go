package prebody

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// The self-test passes with the fasthttp that is required, and finds one whose header is
// somewhere else, or is not that of its request.
func TestProbe(t *testing.T) {
	require.NoError(t, probe(contextOf))
	other := new(fasthttp.RequestCtx)
	require.ErrorContains(t, probe(func(*fasthttp.RequestHeader) *fasthttp.RequestCtx { return other }), "not that of its request")
	n := 0
	require.ErrorContains(t, probe(func(h *fasthttp.RequestHeader) *fasthttp.RequestCtx {
		if n++; n > 1 {
			return other // as if a second request on a connection were another one
		}
		return contextOf(h)
	}), "kept from being read")
}
