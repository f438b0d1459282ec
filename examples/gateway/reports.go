package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	promgate "github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/monitor"
)

// The paths of the reports.
const (
	pagePath     = "/headgate/" // the live page, which asks for the next three
	statusPath   = "/headgate/status"
	inflightPath = "/headgate/inflight"
	historyPath  = "/headgate/history"
	metricsPath  = "/metrics"
)

// maxReports is how many reports are written at once. They pass the byte gate by, so that
// one that is full can be looked at, and this is their own bound.
const maxReports = 16

// reportTime is how long a report may take to be read by its client, which has one of those
// places meanwhile.
const reportTime = 10 * time.Second

// isReport reports whether a path is a report's.
func isReport(path string) bool {
	return slices.Contains([]string{pagePath, statusPath, inflightPath, historyPath, metricsPath}, path)
}

// reports returns what GET answers under the reports' paths: to who knows the monitor_key, and
// where there is none, to clients on this machine. Without headgate there are two, which say so.
func (g *gateway) reports() map[string]http.Handler {
	m := map[string]http.Handler{
		statusPath:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, struct{}{}) }),
		inflightPath: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, inflight.Snapshot{}) }),
	}
	if g.hg != nil {
		for _, path := range []string{pagePath, statusPath, inflightPath, historyPath} {
			m[path] = g.monitor
		}
		m[metricsPath] = promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{})
	}
	slots := make(chan struct{}, maxReports)
	for path, h := range m {
		m[path] = g.onlyTheirs(few(slots, reportTime, h)) // who may not look takes no place
	}
	return m
}

// openReports makes what the reports are read from.
func (g *gateway) openReports() error {
	metrics, err := promgate.New(g.hg)
	if err != nil {
		return err
	}
	g.registry = prometheus.NewRegistry()
	if _, err := metrics.Register(g.registry); err != nil { // as long as the process
		return err
	}
	c := monitor.DefaultConfig()
	c.Authorize = func(*http.Request) bool { return true } // onlyTheirs has asked
	g.monitor, err = monitor.New(g.hg, c)
	return err
}

// few answers 503 where all slots are taken. A client that has not read its answer after
// most loses it, and its slot.
func few(slots chan struct{}, most time.Duration, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			c := http.NewResponseController(w)
			if c.SetWriteDeadline(time.Now().Add(most)) == nil {
				defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // the connection's next answer may take longer
			}
			h.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many reports are asked for at once", http.StatusServiceUnavailable)
		}
	})
}

// onlyTheirs lets in whoever knows the monitor_key: as a bearer token, or as the password that
// a browser asks for. Where there is none it lets in whoever is on this machine. A key is asked of
// those too: a proxy beside the gateway may look like one of them.
func (g *gateway) onlyTheirs(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := *g.monitorKey.Load()
		if key == "" && monitor.Loopback(r) || key != "" && knows(r, key) {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if key == "" {
			http.Error(w, "reports are for clients on this machine, unless there is a monitor_key in the configuration", http.StatusForbidden)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="headgate", charset="UTF-8"`)
		http.Error(w, "reports need the monitor_key, as a bearer token or as the password", http.StatusUnauthorized)
	})
}

func knows(r *http.Request, key string) bool {
	_, got, _ := r.BasicAuth()
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		got = token
	}
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// validateMonitorKey returns an error that does not repeat the key.
func validateMonitorKey(key string) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if key != "" && (len(key) < 16 || len(key) > 256 || strings.ContainsFunc(key, odd)) {
		return errors.New("monitor_key is not shown here: want 16 to 256 visible ASCII characters without spaces")
	}
	return nil
}
