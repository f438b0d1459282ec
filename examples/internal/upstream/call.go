package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream/station"
)

// dialect is one of the three APIs: the shapes of its answers. An answer that is
// streamed is opened, gets its tokens one by one, and is closed.
type dialect interface {
	requestIDHeader() string
	failure(f failure, requestID string) any
	whole(a *answer) any
	open(a *answer) []event
	token(a *answer, i int) []event
	// close returns at least one event; with the last the client has the whole answer.
	close(a *answer) []event
}

// event is a server-sent event. Without a name it has only a data line; without data it
// is OpenAI's end mark.
type event struct {
	name string
	data any
}

// answer is what the model says, before a dialect gives it its shape.
type answer struct {
	id      string // of 24 digits, without the API's prefix
	created int64  // Unix time, in seconds
	request request
	words   []string // one a token
	cut     bool     // the request's bound ended it
}

func (a *answer) text() string { return strings.Join(a.words, "") }

func (a *answer) outputTokens() int64 { return int64(len(a.words)) }

// vocabulary is what the model has learnt.
var vocabulary = []string{
	"Every", " call", " waits", " its", " turn", ",", " none", " waits", " for", " ever", ",", " and", " each", " is", " answered", ".",
}

func (s *Server) newAnswer(id string, q request) *answer {
	a := &answer{id: strings.TrimPrefix(id, "req_"), created: time.Now().Unix(), request: q}
	n := s.tokens
	if bound := q.maxTokens(); bound != nil && *bound < int64(n) {
		n, a.cut = int(*bound), true
	}
	for i := range n {
		word := vocabulary[i%len(vocabulary)]
		if i > 0 && i%len(vocabulary) == 0 {
			word = " " + word
		}
		a.words = append(a.words, word)
	}
	return a
}

// call serves one call of d's API from its request to its answer.
func (s *Server) call(w http.ResponseWriter, r *http.Request, d dialect) {
	if r.Method != http.MethodPost {
		s.wrongMethod(w, r, d, http.MethodPost)
		return
	}
	q, err := s.read(w, r)
	if f := (failure{}); errors.As(err, &f) {
		s.fail(w, d, f)
		return
	}
	job, err := s.station.Enter()
	if err != nil {
		s.refuse(w, d, err)
		return
	}
	defer job.Leave() // nothing where the call was answered
	a := s.newAnswer(s.requestID(w, d), q)
	if q.Stream {
		s.stream(w, r, d, job, a)
		return
	}
	if err := job.Await(r.Context(), job.Work()); err != nil {
		s.refuse(w, d, err)
		return
	}
	job.Answer()
	writeJSON(w, http.StatusOK, d.whole(a))
}

// refuse answers a call that the station did not take in or did not finish.
func (s *Server) refuse(w http.ResponseWriter, d dialect, err error) {
	switch {
	case errors.Is(err, station.ErrFull):
		w.Header().Set("Retry-After", s.retryAfter)
		s.fail(w, d, failure{
			status:  http.StatusTooManyRequests,
			message: "the back end serves as many calls as it can; retry after " + s.retryAfter + " s",
			code:    "rate_limit_exceeded",
		})
	case errors.Is(err, station.ErrClosed):
		s.fail(w, d, failure{status: http.StatusServiceUnavailable, message: "the back end is shutting down"})
	}
	// Else the client has left.
}

// stream answers with server-sent events. The head and the first token go out when
// the service starts, the other tokens evenly over it, the end when it ends.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, d dialect, job *station.Job, a *answer) {
	ctx := r.Context()
	if err := job.Await(ctx, 0); err != nil {
		s.refuse(w, d, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	err := send(w, d.open(a))
	for i := 0; i < len(a.words) && err == nil; i++ {
		due := time.Duration(float64(job.Work()) * float64(i) / float64(len(a.words)))
		if err = job.Await(ctx, due); err == nil {
			err = send(w, d.token(a, i))
		}
	}
	if err == nil {
		err = job.Await(ctx, job.Work())
	}
	if err != nil {
		// The client has left or the server closes; it must not look like an end.
		panic(http.ErrAbortHandler)
	}
	job.Answer()
	_ = send(w, d.close(a)) // who has left by now had the whole service
}

// send writes events and flushes them.
func send(w http.ResponseWriter, events []event) error {
	var b bytes.Buffer
	for _, e := range events {
		if e.name != "" {
			b.WriteString("event: " + e.name + "\n")
		}
		data := []byte("[DONE]")
		if e.data != nil {
			var err error
			if data, err = json.Marshal(e.data); err != nil {
				panic(err) // the data is one of our own types
			}
		}
		b.WriteString("data: ")
		b.Write(data)
		b.WriteString("\n\n")
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
