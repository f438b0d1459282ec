package httpgate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// I7: the hook also sees that the gate has cut a body that it had admitted, and a gate that
// has not is silent.
func TestOnDecisionOfACutBody(t *testing.T) {
	c := admission.DefaultConfig()
	c.MaxInflightBytes, c.HardMaxBodyBytes = 8<<20, 1<<20
	outer, err := admission.New(c)
	require.NoError(t, err)
	defer outer.Close()
	var seen []error
	hook := func(d httpgate.Decision) { seen = append(seen, d.Err) }
	inner := false
	silent := httpgate.WithConfig(httpgate.Config{Gate: &slots{limit: 1}, OnDecision: func(d httpgate.Decision) { inner = inner || d.Err != nil }})
	a := httpgate.WithConfig(httpgate.Config{Gate: outer, OnDecision: hook})(silent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		httpgate.Refuse(w, r, err)
	})))
	for _, tc := range []struct {
		size   int
		held   int64 // of the budget of 8 MiB, by others
		status int
		why    error
	}{
		{1 << 10, 0, http.StatusOK, nil},
		{2 << 20, 0, http.StatusRequestEntityTooLarge, gate.PayloadTooLarge},
		{512 << 10, 8<<20 - 128<<10, http.StatusServiceUnavailable, gate.AdmissionBusy}, // no room to grow
	} {
		var held []gate.Lease
		for left := tc.held; left > 0; left -= 1 << 20 {
			lease, err := outer.Acquire(t.Context(), gate.Request{Bytes: min(left, 1<<20)})
			require.NoError(t, err)
			held = append(held, lease)
		}
		seen, inner = nil, false
		r := httptest.NewRequest(http.MethodPost, "http://app/", io.MultiReader(strings.NewReader(strings.Repeat("x", tc.size))))
		r.ContentLength = -1
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, r)
		require.Equal(t, tc.status, rec.Code)
		require.False(t, inner)
		require.NoError(t, seen[0])
		if tc.why == nil {
			require.Len(t, seen, 1)
		} else {
			require.Len(t, seen, 2)
			require.ErrorIs(t, seen[1], tc.why)
		}
		for _, lease := range held {
			lease.Release()
		}
	}
	require.Zero(t, outer.Snapshot().InflightBytes)
}
