// Package upstream is a mock LLM back end: it speaks the Chat Completions, Messages
// and Responses APIs, whole and streamed, takes a given time for each call, and has
// a given capacity. It counts what it did, so that a test can tell what its clients
// did to it.
//
// Package station below it decides when a call is served and how fast; this package
// turns that into HTTP.
package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream/station"
)

const (
	// maxTokens is the longest answer that can be configured.
	maxTokens = 100_000
	// maxRetryAfter is the longest time for which calls can be sent away.
	maxRetryAfter = 24 * time.Hour
)

// Config is what a Server is made of. Values are literal: start from
// [DefaultConfig].
type Config struct {
	// Capacity is how many calls are served at full speed. Default 8. At least 1. The
	// calls beyond it wait, first come first served, unless Collapse or RetryAfter is set.
	Capacity int
	// Service is the mean time that a call takes at full speed. Default 200ms. 0 (at
	// once) to 1h.
	Service time.Duration
	// Jitter spreads the times evenly over Service x (1 - Jitter .. 1 + Jitter). Default
	// 0.2. 0 to 1.
	Jitter float64
	// Seed decides the times: the n-th accepted call takes the same time in every
	// run with the same seed. Default 1.
	Seed uint64
	// Collapse serves all calls at once, beyond the capacity each slower in proportion, and
	// works to the end on calls whose client has left. Default false.
	Collapse bool
	// RetryAfter, if not 0, refuses calls beyond the capacity with a 429 that
	// carries it, in whole seconds, rounded up. Default 0. 0 to 24h. Not together with
	// Collapse: one refuses what the other lets in.
	RetryAfter time.Duration
	// Tokens is how long an answer is that the request does not bound further. Default
	// 16. 1 to 100,000.
	Tokens int
	// MaxBodyBytes bounds a request body. Default 64 MiB. At least 1.
	MaxBodyBytes int64
}

// DefaultConfig returns the defaults that the fields of [Config] name.
func DefaultConfig() Config {
	return Config{
		Capacity:     8,
		Service:      200 * time.Millisecond,
		Jitter:       0.2,
		Seed:         1,
		Tokens:       16,
		MaxBodyBytes: 64 << 20,
	}
}

// Stats is what a Server did since it started, or since the last reset. At any moment
//
//	Started = Completed + Abandoned + Concurrent
//
// except that with Collapse, Concurrent also holds calls whose client has left and
// that are still worked on.
type Stats struct {
	// Concurrent counts the calls accepted and not yet answered, waiting ones
	// included; MaxConcurrent is the most there were at once. Waiting is the part of
	// Concurrent that has not started.
	Concurrent    int `json:"concurrent"`
	MaxConcurrent int `json:"max_concurrent"`
	Waiting       int `json:"waiting"`
	// Started counts the calls accepted, Completed those answered, Abandoned those whose
	// client left before, Refused those answered with a 429.
	Started   int64 `json:"started"`
	Completed int64 `json:"completed"`
	Abandoned int64 `json:"abandoned"`
	Refused   int64 `json:"refused"`
	// WorkMS is the work done, for whomever, in milliseconds of service; WastedMS
	// the part of it that went to abandoned calls.
	WorkMS   int64 `json:"work_ms"`
	WastedMS int64 `json:"wasted_ms"`
}

// Server is the back end, an http.Handler.
type Server struct {
	station    *station.Station
	retryAfter string // whole seconds
	tokens     int
	maxBody    int64
	mux        *http.ServeMux
	requests   atomic.Uint64
}

// New returns a Server. Its caller owes it a Close. The error names the first field of c
// that is out of range, and its value.
func New(c Config) (*Server, error) {
	discipline := station.Queue
	switch {
	case c.Collapse && c.RetryAfter != 0:
		return nil, errors.New("collapse and retry-after contradict each other: one serves the calls beyond the capacity, the other refuses them")
	case c.RetryAfter < 0 || c.RetryAfter > maxRetryAfter:
		return nil, fmt.Errorf("retry-after %v: want 0 (off) to %v", c.RetryAfter, maxRetryAfter)
	case c.Tokens < 1 || c.Tokens > maxTokens:
		return nil, fmt.Errorf("tokens %d: want 1 to %d", c.Tokens, maxTokens)
	case c.MaxBodyBytes < 1:
		return nil, fmt.Errorf("max body bytes %d: want 1 or more", c.MaxBodyBytes)
	case c.Collapse:
		discipline = station.Share
	case c.RetryAfter > 0:
		discipline = station.Refuse
	}
	st, err := station.New(station.Config{
		Capacity: c.Capacity, Discipline: discipline, Service: c.Service, Jitter: c.Jitter, Seed: c.Seed,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{
		station:    st,
		retryAfter: strconv.FormatInt(int64(math.Ceil(c.RetryAfter.Seconds())), 10),
		tokens:     c.Tokens,
		maxBody:    c.MaxBodyBytes,
		mux:        http.NewServeMux(),
	}
	s.mux.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.call(w, r, chat{}) })
	s.mux.HandleFunc("/v1/messages", func(w http.ResponseWriter, r *http.Request) { s.call(w, r, messages{}) })
	s.mux.HandleFunc("/v1/responses", func(w http.ResponseWriter, r *http.Request) { s.call(w, r, responses{}) })
	s.mux.HandleFunc("GET /stats", s.serveStats)
	s.mux.HandleFunc("POST /stats/reset", s.serveReset)
	s.mux.HandleFunc("/", s.unknown)
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends all calls: those that nothing is written of yet get a 503, streams
// break off. It does not wait for them; stop the http.Server for that. Closing twice does
// nothing.
func (s *Server) Close() { s.station.Close() }

// Stats returns the counters as of now.
func (s *Server) Stats() Stats {
	st := s.station.Stats()
	return Stats{
		Concurrent:    st.Concurrent,
		MaxConcurrent: st.MaxConcurrent,
		Waiting:       st.Waiting,
		Started:       st.Started,
		Completed:     st.Completed,
		Abandoned:     st.Abandoned,
		Refused:       st.Refused,
		WorkMS:        st.Work.Round(time.Millisecond).Milliseconds(),
		WastedMS:      st.Wasted.Round(time.Millisecond).Milliseconds(),
	}
}

// Reset starts the counters afresh. Calls that are here stay counted as started and
// concurrent; what is worked on them from now on counts.
func (s *Server) Reset() { s.station.Reset() }

func (s *Server) serveStats(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Stats())
}

func (s *Server) serveReset(w http.ResponseWriter, _ *http.Request) {
	s.Reset()
	w.WriteHeader(http.StatusNoContent)
}

// unknown answers what no pattern matches, in the shape that its client expects. What
// has a pattern for another method lands here too.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	var d dialect = chat{}
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		d = messages{}
	}
	switch r.URL.Path {
	case "/stats":
		s.wrongMethod(w, r, d, "GET, HEAD")
	case "/stats/reset":
		s.wrongMethod(w, r, d, http.MethodPost)
	default:
		s.fail(w, d, failure{status: http.StatusNotFound, message: fmt.Sprintf("no such endpoint: %s %s", r.Method, r.URL.Path)})
	}
}

func (s *Server) wrongMethod(w http.ResponseWriter, r *http.Request, d dialect, allow string) {
	w.Header().Set("Allow", allow)
	s.fail(w, d, failure{
		status:  http.StatusMethodNotAllowed,
		message: fmt.Sprintf("%s does not take %s, only %s", r.URL.Path, r.Method, allow),
		code:    "method_not_supported",
	})
}

// fail answers f in d's shape.
func (s *Server) fail(w http.ResponseWriter, d dialect, f failure) {
	id := s.requestID(w, d)
	writeJSON(w, f.status, d.failure(f, id))
}

// requestID sets and returns the id under which d's API answers a request.
func (s *Server) requestID(w http.ResponseWriter, d dialect) string {
	id := fmt.Sprintf("req_%024d", s.requests.Add(1))
	w.Header().Set(d.requestIDHeader(), id)
	return id
}

// writeJSON answers with v. A client that has left gets nothing, and nobody else cares.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // v is one of our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
