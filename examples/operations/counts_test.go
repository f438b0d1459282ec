package operations

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
	promgate "github.com/headgate-go/headgate/adapters/prometheus"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
)

// shedLine is a series of refusals that is not zero.
var shedLine = regexp.MustCompile(`(?m)^headgate_([a-z]+)_(sheds_total\{reason="([a-z_]+)"\}|repeat_sheds_total\{.*\}) ([1-9]\d*)$`)

// sheds are the refusals by gate and reason.
func sheds(t *testing.T, metrics http.Handler) map[string]int {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	all := map[string]int{}
	for _, m := range shedLine.FindAllStringSubmatch(w.Body.String(), -1) {
		n, err := strconv.Atoi(m[4])
		require.NoError(t, err)
		all[m[1]+" "+m[3]] += n
	}
	return all
}

// I10, I7: whichever gates of a chain are full, a request that is refused is counted once,
// by the outermost of them; the hook of that gate is called for it, and its answer says the
// same reason. In the end there are as many counts as refused answers.
func TestI10OneCountForARefusal(t *testing.T) {
	c := headgate.DefaultConfig()
	c.Logger = config(gate.Enforce).Logger
	c.Admission.MaxInflightBytes, c.Admission.MaxWaiters = 8<<20, 0
	c.Lanes.Mode, c.Lanes.MaxQueueCount = gate.Enforce, 0
	c.Inflight.Mode, c.Inflight.MaxInflight, c.Inflight.MaxQueue, c.Inflight.InteractiveReserve = gate.Enforce, 1, 0, 0
	hg, err := headgate.Open(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, hg.Shutdown(context.Background(), nil)) }()
	collector, err := promgate.New(hg)
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	_, err = collector.Register(registry)
	require.NoError(t, err)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	var hooks []string // who was told of a refusal
	through := func(name string, g gate.Gate, next http.Handler) http.Handler {
		return httpgate.WithConfig(httpgate.Config{Gate: g, OnDecision: func(d httpgate.Decision) {
			if d.Err != nil {
				hooks = append(hooks, name)
			}
		}})(next)
	}
	app := through("admission", hg.Bytes, through("lanes", hg.Tenants, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := hg.Outbound.Acquire(r.Context(), gate.Request{Lane: small})
		if httpgate.Refuse(w, r, err) {
			return
		}
		lease.Release()
	})))

	gates := []struct {
		name, reason string
		gate         gate.Gate
		all          gate.Request // takes all that the gate has
	}{
		{"admission", "admission_busy", hg.Bytes, gate.Request{Bytes: 8 << 20}},
		{"lanes", "queue_full", hg.Tenants, gate.Request{Flow: "tenant", Cost: int64(c.Lanes.InitialLimit)}},
		{"outbound", "queue_full", hg.Outbound, gate.Request{Lane: small}},
	}
	refused := 0
	for full := range 1 << len(gates) {
		t.Run(fmt.Sprintf("%03b", full), func(t *testing.T) {
			outermost := -1
			for i := len(gates) - 1; i >= 0; i-- {
				if full&(1<<i) != 0 {
					outermost = i
					lease, err := gates[i].gate.Acquire(context.Background(), gates[i].all)
					require.NoError(t, err)
					defer lease.Release()
				}
			}
			before := sheds(t, metrics)
			hooks = nil
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://app/", strings.NewReader("body")))
			rise := sheds(t, metrics)
			for name, n := range before {
				if rise[name] -= n; rise[name] == 0 {
					delete(rise, name)
				}
			}
			if outermost < 0 {
				assert.Equal(t, http.StatusOK, w.Code)
				assert.Empty(t, rise)
				assert.Empty(t, hooks)
				return
			}
			refused++
			g := gates[outermost]
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
			assert.Equal(t, g.reason, w.Header().Get("Headgate-Reason"))
			assert.Equal(t, map[string]int{g.name + " " + g.reason: 1}, rise)
			if g.name == "outbound" { // it has no middleware: its refusal is the handler's
				assert.Empty(t, hooks)
			} else {
				assert.Equal(t, []string{g.name}, hooks)
			}
		})
	}
	sum := 0
	for _, n := range sheds(t, metrics) {
		sum += n
	}
	assert.Equal(t, 7, refused)
	assert.Equal(t, refused, sum)
}
