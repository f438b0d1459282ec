package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/pressure"
)

// snapshot is what the gateway says of all its gates.
func (a *app) snapshot() (s headgate.Snapshot) {
	a.t.Helper()
	_, answer := a.do(http.MethodGet, statusPath, nil)
	require.NoError(a.t, json.Unmarshal([]byte(answer), &s), answer)
	return s
}

// severity waits until the pressure is so.
func (a *app) severity(want pressure.Severity) {
	a.t.Helper()
	a.until("the pressure is "+want.String(), func(status) bool { return a.snapshot().Pressure.Severity == want })
}

// With thresholds that any process is over, heavy bodies are refused and the process is not
// ready; it lives, and what is small is answered. The thresholds can change while it runs.
func TestPressure(t *testing.T) {
	const over = `pressure: {period: 10ms, collect_interval: 1h, not_ready_after: 0s, live_heap: {high: 1e-8, critical: 2e-8, recovered: 1e-9}}`
	a := start(t, over)
	a.severity(pressure.Critical)
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader(strings.Repeat("x", mib)))
	requireRefused(t, resp, answer, 503, "resource_pressure")
	for path, want := range map[string]int{readyPath: 503, healthPath: 200} {
		resp, _ = a.do(http.MethodGet, path, nil)
		assert.Equal(t, want, resp.StatusCode, path)
	}
	resp, _ = a.do(http.MethodPost, "/echo", strings.NewReader("small"))
	assert.Equal(t, 200, resp.StatusCode)

	s := a.snapshot()
	assert.Equal(t, "live_heap", s.Pressure.Signal)
	assert.Len(t, s.Pressure.Signals, 7)
	assert.Equal(t, pressure.Critical, s.Admission.PressureSeverity)
	assert.Contains(t, a.log.String(), "memory pressure changed")
	assert.Contains(t, a.log.String(), "reason=resource_pressure")
	assert.Contains(t, a.log.String(), "pressure.live_heap.value=")

	a.write(strings.Replace(over, "high: 1e-8, critical: 2e-8, recovered: 1e-9", "high: 0.85, critical: 0.92, recovered: 0.75", 1))
	a.severity(pressure.Normal)
	resp, _ = a.do(http.MethodPost, "/echo", strings.NewReader(strings.Repeat("x", mib)))
	assert.Equal(t, 200, resp.StatusCode)
	resp, answer = a.do(http.MethodGet, readyPath, nil)
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, "ready\n", answer)
}

// A configuration of the pressure that cannot work names the field.
func TestPressureRefused(t *testing.T) {
	for text, want := range map[string]string{
		"pressure: {period: 0s}": "Period",
		"pressure: {live_heap: {high: 0.9, critical: 0.8, recovered: 0.1}}": "LiveHeap",
		"pressure: {psi: {high: 30, critical: 60, recovered: 30}}":          "PSI",
		"pressure: {no_such: 1}": "no_such",
		"pressure: {gc_share: {high: 0.25, critical: 0.4, recovered: 0, x: 1}}":  "x",
		"pressure: {memory_high: {high: .nan, critical: 0.92, recovered: 0.75}}": "MemoryHigh",
	} {
		_, err := parseConfig([]byte(text), mustDefault(t))
		require.ErrorContains(t, err, want, text)
	}
}

func mustDefault(t *testing.T) config {
	t.Helper()
	c, err := defaultConfig(noenv)
	require.NoError(t, err)
	return c
}
