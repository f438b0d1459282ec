package gatetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

func (a sample) hasBody(r *http.Request) bool {
	if a.has("puts no body under a lease") {
		return r.Body != nil
	}
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

func (a sample) unread(r *http.Request) bool {
	if b, ok := r.Body.(*sampleBody); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.over
	}
	return !a.poor && a.hasBody(r)
}

// prefetch reads the beginning of a body whose length is known, as servers do that hand
// out the rest as a stream.
func prefetch(r *http.Request) (*http.Request, int64) {
	if r.ContentLength <= 0 {
		return r, 0
	}
	p := make([]byte, min(r.ContentLength, 8<<10))
	n, _ := io.ReadFull(r.Body, p)
	in := r.WithContext(r.Context())
	in.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(p[:n]), r.Body), r.Body}
	return in, int64(n)
}

// timeouts are the server's.
func (a sample) timeouts(r *http.Request) (read, write time.Duration) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && !a.has("leaves the timeouts alone") {
		return s.ReadTimeout, s.WriteTimeout
	}
	return 0, 0
}

// acquire asks the gate with the deadlines of an HTTP/2 stream taken off.
func (a sample) acquire(w http.ResponseWriter, r *http.Request, g gate.Gate, q gate.Request) (gate.Lease, error) {
	rc, ctx := http.NewResponseController(w), r.Context()
	read, write := a.timeouts(r)
	if r.ProtoMajor == 2 && read > 0 {
		_ = rc.SetReadDeadline(time.Time{})
	}
	if r.ProtoMajor == 2 && write > 0 {
		_ = rc.SetWriteDeadline(time.Time{})
	}
	switch a.bug {
	case "waits whoever leaves":
		ctx = context.WithoutCancel(ctx)
	case "reads the body first":
		p, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		_ = p
	case "says 100 first":
		w.WriteHeader(http.StatusContinue)
	}
	switch a.bug {
	case "asks for one after the other":
		a.kept.mu.Lock()
		defer a.kept.mu.Unlock()
	case "keeps all flows":
		a.kept.mu.Lock()
		a.kept.flows = append(a.kept.flows, q.Flow)
		a.kept.mu.Unlock()
	}
	lease, err := g.Acquire(ctx, q)
	if read > 0 && lease.Waited() > 0 && a.has("restarts ReadTimeout at once") {
		_ = rc.SetReadDeadline(time.Now().Add(read))
	}
	if a.has("takes the write deadline off") {
		_ = rc.SetWriteDeadline(time.Time{})
	}
	if write > 0 && (r.ProtoMajor == 2 || err != nil || lease.Waited() > 0) {
		_ = rc.SetWriteDeadline(time.Now().Add(write))
	}
	return lease, err
}

// told is the refusal that the client is told, nil for one that has left.
func (a sample) told(r *http.Request, err error) error {
	var rej *gate.Rejection
	switch {
	case errors.As(err, &rej):
	case a.has("tells the gate's error"):
		rej = &gate.Rejection{Reason: "failed", Gate: "sample", Advice: err.Error()}
	default:
		rej = &gate.Rejection{Reason: "failed", Gate: "sample"}
	}
	if rej.Reason == gate.Canceled && r.Context().Err() != nil && !a.has("answers who has left") {
		panic(http.ErrAbortHandler)
	}
	return rej
}

// answer writes a refusal.
func (a sample) answer(w http.ResponseWriter, r *http.Request, err error, f gate.Format) {
	var rej *gate.Rejection
	errors.As(err, &rej)
	h := w.Header()
	if a.closes(r) {
		h.Set("Connection", "close")
		if !a.has("lingers without end") {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		}
		if r.Header.Get("Expect") != "" && !a.has("resets who does not wait for 100") { // net/http would
			_, _ = http.MaxBytesReader(innermost(w), io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
		}
	}
	h.Set(gate.MarkerHeader, string(rej.Reason))
	if a.has("answers without a marker") {
		h.Del(gate.MarkerHeader)
	}
	if s := rej.RetryAfterSeconds(); s != "" {
		h.Set("Retry-After", s)
	} else if a.has("always says Retry-After") {
		h.Set("Retry-After", "1")
	}
	if a.has("says Retry-After in fractions") {
		h.Set("Retry-After", fmt.Sprint(rej.RetryAfter.Seconds()))
	}
	body, contentType := rej.Render(f)
	h.Set("Content-Type", contentType)
	if a.has("clears the headers") {
		h.Del("Access-Control-Allow-Origin")
	}
	w.WriteHeader(rej.Status())
	if a.has("answers twice") {
		w.WriteHeader(rej.Status())
	}
	_, _ = w.Write(body)
}

// closes reports whether the answer must end the connection.
func (a sample) closes(r *http.Request) bool {
	switch {
	case a.has("never closes"):
		return false
	case a.has("always closes"):
		return true
	case a.has("closes HTTP/2 too"):
		return a.unread(r)
	case a.has("closes whatever was read"):
		return r.ProtoMajor == 1 && a.hasBody(r)
	}
	return r.ProtoMajor == 1 && a.unread(r)
}

// wrap puts the body of in under its lease. Deadlines are moved only where somebody
// tells when the handler has returned.
func (a sample) wrap(w http.ResponseWriter, in *http.Request, lease gate.Lease, deadlines bool) *sampleSource {
	if b, ok := in.Body.(*sampleBody); ok {
		if !a.has("has one lease for the body") {
			in.Body = &sampleBody{lease.Body(b, b.setReadDeadline), b.sampleSource}
		}
		return nil
	}
	if !a.hasBody(in) || a.has("reads bodies without the lease") {
		return nil
	}
	if a.poor {
		in.Body = lease.Body(in.Body, nil)
		return nil
	}
	s := &sampleSource{a: a, raw: in.Body, w: w, one: in.ProtoMajor == 1}
	if read, _ := a.timeouts(in); read > 0 {
		s.end, s.fresh = time.Now().Add(read), in.ProtoMajor == 2 || lease.Waited() > 0
	}
	if a.has("releases when the body ends") {
		s.atEnd = lease.Release
	}
	set := s.setReadDeadline
	if a.has("lets slow senders be") || !deadlines {
		set, s.fresh, s.end = nil, false, time.Time{}
	}
	in.Body = &sampleBody{lease.Body(s, set), s}
	return s
}

// Read reads the body itself.
func (s *sampleSource) Read(p []byte) (int, error) {
	s.mu.Lock()
	if s.fresh {
		_ = s.moveLocked(s.end)
	}
	fresh := s.fresh
	s.fresh = false
	s.mu.Unlock()
	n, err := s.raw.Read(p)
	if err == io.EOF {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
		if s.atEnd != nil {
			s.atEnd()
		}
		if (fresh || !s.end.IsZero()) && !s.a.has("leaves the deadline behind") {
			_ = s.moveLocked(time.Time{})
		}
	}
	return n, err
}

// Close closes the body.
func (s *sampleSource) Close() error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	return s.raw.Close()
}

func (s *sampleSource) setReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.IsZero() && s.a.has("leaves the deadline behind") {
		return nil
	}
	if !s.end.IsZero() && !s.over && (t.IsZero() || t.After(s.end)) {
		t = s.end
	}
	return s.moveLocked(t)
}

func (s *sampleSource) moveLocked(t time.Time) error {
	if s.left {
		return http.ErrBodyReadAfterClose
	}
	return http.NewResponseController(s.w).SetReadDeadline(t)
}

// leave ends the use of the connection with the handler.
func (s *sampleSource) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.one && !s.over && !s.a.has("lingers without end") {
		_ = s.moveLocked(time.Now().Add(time.Second))
	}
	s.left = !s.a.has("moves deadlines for ever")
}

// innermost is the server's own writer.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}
