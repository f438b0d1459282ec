package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reportOf asks for a report with header lines.
func (a *app) reportOf(method, path string, header ...string) (reply, string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, nil)
	require.NoError(a.t, err)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := a.client.Do(req)
	require.NoError(a.t, err)
	got, text, err := read(resp)
	require.NoError(a.t, err)
	return got, text
}

// The page, what it asks for, and the metrics are served alike by every framework, while
// the byte budget is full.
func TestReports(t *testing.T) {
	for _, mode := range everyFramework() {
		t.Run(mode, func(t *testing.T) {
			a := start(t, "admission: {max_inflight_bytes: 8MiB}\ninflight: {max_inflight: 3}", mode)
			c := a.dial()
			c.post("/echo", contentLength(8*mib))
			a.until("the budget is full", func(s status) bool { return s["inflight_bytes"] == 8*mib })

			resp, page := a.reportOf(http.MethodGet, pagePath)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
			assert.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'sha256-")
			assert.Contains(t, page, "<!doctype html>")
			for _, path := range []string{statusPath, inflightPath, historyPath} {
				resp, text := a.reportOf(http.MethodGet, path)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"), path)
				assert.True(t, json.Valid([]byte(text)), "%s: %s", path, text)
			}
			resp, text := a.reportOf(http.MethodGet, metricsPath)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Contains(t, text, fmt.Sprintf("\nheadgate_admission_inflight_bytes %g\n", float64(8*mib)))
			resp, text = a.reportOf(http.MethodHead, metricsPath)
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Empty(t, text)

			for _, path := range []string{pagePath, historyPath, metricsPath} {
				resp, _ = a.reportOf(http.MethodPost, path)
				assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, path)
				assert.Contains(t, resp.Header.Get("Allow"), "GET, HEAD", path)
			}
			resp, _ = a.reportOf(http.MethodGet, pagePath+"more")
			assert.Equal(t, http.StatusNotFound, resp.StatusCode)
		})
	}
}

// Reports are for this machine and for who knows the key, which can change meanwhile.
func TestMonitorKey(t *testing.T) {
	for _, mode := range everyFramework() {
		t.Run(mode, func(t *testing.T) {
			const proxied, key = "X-Forwarded-For: 192.0.2.1", "0123456789abcdef"
			a := start(t, "drain_timeout: 10s", mode)
			for _, path := range []string{pagePath, statusPath, inflightPath, historyPath, metricsPath} {
				resp, _ := a.reportOf(http.MethodGet, path, proxied)
				assert.Equal(t, http.StatusForbidden, resp.StatusCode, path)
			}
			a.write("monitor_key: " + key)
			a.logs("config applied")
			for _, path := range []string{pagePath, statusPath, metricsPath} {
				resp, text := a.reportOf(http.MethodGet, path, proxied)
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
				assert.Contains(t, resp.Header.Get("WWW-Authenticate"), "Basic realm=")
				assert.NotContains(t, text, key)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: Bearer "+key)
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: Basic eDowMTIzNDU2Nzg5YWJjZGVm") // x:key
				assert.Equal(t, http.StatusOK, resp.StatusCode, path)
				resp, _ = a.reportOf(http.MethodGet, path, proxied, "Authorization: Bearer "+key+"0")
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
			}
			assert.NotContains(t, a.log.String(), key)
		})
	}
}

func TestMonitorKeyIsChecked(t *testing.T) {
	base, err := defaultConfig(noenv)
	require.NoError(t, err)
	for _, key := range []string{"short", strings.Repeat("x", 257), "0123456789 abcdef", "0123456789abcdé"} {
		_, err := parseConfig([]byte("monitor_key: '"+key+"'"), base)
		assert.ErrorContains(t, err, "monitor_key")
		assert.NotContains(t, err.Error(), key)
	}
}

// No more reports than the bound are written at once; the next are refused, and later ones
// served again.
func TestReportsHaveABound(t *testing.T) {
	slots, in, out := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	h := few(slots, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in <- struct{}{}; <-out }))
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, metricsPath, nil))
		return w
	}
	for range 3 {
		var busy sync.WaitGroup
		for range 2 {
			busy.Go(func() { assert.Equal(t, http.StatusOK, ask().Code) })
			<-in
		}
		w := ask()
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		out <- struct{}{}
		out <- struct{}{}
		busy.Wait()
	}
}

// Without headgate there is no page, and what there is says so.
func TestReportsOfABareGateway(t *testing.T) {
	a := start(t, "", "-bare")
	for path, want := range map[string]int{pagePath: 404, historyPath: 404, metricsPath: 404, statusPath: 200, inflightPath: 200} {
		resp, _ := a.do(http.MethodGet, path, io.Reader(nil))
		assert.Equal(t, want, resp.StatusCode, path)
	}
}
