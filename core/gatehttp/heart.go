package gatehttp

import (
	"io"
	"maps"
	"mime"
	"net/http"
	"sync"
	"time"
)

// Heart is an http.ResponseWriter for a handler that answers with server-sent events and
// may have to wait before it can: see [Heartbeat].
type Heart struct {
	w     http.ResponseWriter
	every time.Duration
	body  *source // nil = not one of ours

	mu     sync.Mutex  // held while w is written to: whoever waits for it could not write either
	timer  *time.Timer // nil = it does not beat
	header http.Header // the handler's: w's own is the beats' until the handler answers
	over   bool        // no beat any more
	begun  bool        // the head was sent by a beat
	said   bool        // the handler has begun to answer
	as     *lines      // nil = what the handler writes goes out as it is
}

// Heartbeat returns a writer for the handler to use in place of w. Until the handler
// begins to answer, it sends a comment line every so often, so that nobody between here and
// the client takes the wait for a broken connection. every <= 0 sends none.
//
// The first comment commits the answer: status 200 and text/event-stream, with the header
// as it was when Heartbeat was called. What the handler sets and writes later still reaches
// the client, as far as that is possible: an event stream goes on in the one that has begun;
// any other answer is put into the data of one event, which is named "error" where its
// status is 400 or above. Without a comment the answer is the handler's own, unchanged.
//
// On HTTP/1 there is no comment before the request's body is read to its end: net/http would
// take what is unread from the handler. Nobody knows that of a body that no middleware of this
// kind has handed out: such a one must have been read before.
//
// The handler must call Close, in a defer, and must not use w itself before. w must be able to
// flush. Not for upgrades, and not for HEAD.
func Heartbeat(w http.ResponseWriter, r *http.Request, every time.Duration) *Heart {
	h := &Heart{w: w, every: every, body: bodyOf(r), header: w.Header().Clone()}
	if h.header == nil {
		h.header = http.Header{}
	}
	if every > 0 {
		h.mu.Lock() // beat reads timer
		h.timer = time.AfterFunc(every, h.beat)
		h.mu.Unlock()
	}
	return h
}

// beat sends a comment, unless the answer has begun.
func (h *Heart) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	if s := h.body; s != nil && s.http1 && !s.over.Load() {
		h.timer.Reset(h.every)
		return
	}
	if !h.begun {
		h.begun = true
		to := h.w.Header()
		to.Del("Content-Length")
		to.Set("Content-Type", eventStream)
		to.Set("Cache-Control", "no-store")
		h.w.WriteHeader(http.StatusOK)
	}
	_, err := io.WriteString(h.w, ": queued\n\n")
	if err == nil {
		err = http.NewResponseController(h.w).Flush()
	}
	if err != nil { // the client has left, which the handler learns in its own way
		h.over = true
		return
	}
	h.timer.Reset(h.every)
}

const eventStream = "text/event-stream"

// Stop ends the comments and reports whether there has been one, which has sent the head of
// the answer.
func (h *Heart) Stop() (begun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
	return h.begun
}

// Header returns the header that the handler is to set. After a comment it is sent no more.
func (h *Heart) Header() http.Header { return h.header }

// WriteHeader begins the answer and ends the comments. An interim status (1xx) does neither,
// and is not sent after a comment.
func (h *Heart) WriteHeader(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answerLocked(status)
}

func (h *Heart) answerLocked(status int) {
	interim := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	switch {
	case interim && h.begun:
		return
	case interim, h.said && !h.begun: // the second time is for the server to complain about
		h.sendLocked(status)
		return
	case h.said:
		return
	}
	h.said = true
	h.stopLocked()
	if !h.begun {
		h.sendLocked(status)
		return
	}
	t, _, _ := mime.ParseMediaType(h.header.Get("Content-Type"))
	if status >= 300 || t != eventStream {
		h.as = &lines{failed: status >= 400}
	}
}

// sendLocked sends a head with the handler's header.
func (h *Heart) sendLocked(status int) {
	h.copyLocked()
	h.w.WriteHeader(status)
}

// copyLocked makes w's header the handler's.
func (h *Heart) copyLocked() {
	to := h.w.Header()
	maps.DeleteFunc(to, func(name string, _ []string) bool { return h.header[name] == nil })
	maps.Copy(to, h.header)
}

// Write writes a part of the answer's body and ends the comments.
func (h *Heart) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.said {
		h.answerLocked(http.StatusOK)
	}
	if h.as == nil {
		return h.w.Write(p)
	}
	if _, err := h.w.Write(h.as.put(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// FlushError sends what is written, and the head where nothing is.
func (h *Heart) FlushError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.said {
		h.answerLocked(http.StatusOK)
	}
	return http.NewResponseController(h.w).Flush()
}

// Flush is FlushError for callers that know no error.
func (h *Heart) Flush() { _ = h.FlushError() }

// Unwrap is for [http.ResponseController].
func (h *Heart) Unwrap() http.ResponseWriter { return h.w }

// Close ends the comments, and the event that holds an answer of another kind. After it
// nothing touches w. Calling it again does nothing.
func (h *Heart) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
	if !h.begun {
		h.copyLocked() // trailers, and what nobody has written a head for
		return
	}
	if h.as != nil {
		_, _ = h.w.Write(h.as.end()) // a client that has left cannot be told
		h.as = nil
	}
}

func (h *Heart) stopLocked() {
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// lines puts text into the data of one server-sent event, piece by piece.
type lines struct {
	failed bool
	begun  bool
	cr     bool // the last byte was a carriage return
	buf    []byte
}

// put returns what to send for the next piece of the text. It is good until the next call.
func (l *lines) put(p []byte) []byte {
	l.buf = l.buf[:0]
	if !l.begun && len(p) > 0 {
		l.begin()
	}
	for _, b := range p {
		if b == '\n' && l.cr { // the second half of one line's end
			l.cr = false
			continue
		}
		if l.cr = b == '\r'; l.cr || b == '\n' {
			l.buf = append(l.buf, "\ndata: "...)
			continue
		}
		l.buf = append(l.buf, b)
	}
	return l.buf
}

func (l *lines) begin() {
	l.begun = true
	if l.failed {
		l.buf = append(l.buf, "event: error\n"...)
	}
	l.buf = append(l.buf, "data: "...)
}

// end returns what ends the event. One that has failed without a text is told all the same.
func (l *lines) end() []byte {
	l.buf = l.buf[:0]
	if !l.begun && l.failed {
		l.begin()
	}
	if l.begun {
		l.buf = append(l.buf, "\n\n"...)
	}
	return l.buf
}
