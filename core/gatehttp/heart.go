package gatehttp

import (
	"bufio"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Heart is an http.ResponseWriter for a handler that answers with server-sent events and
// may have to wait before it can: see [Heartbeat].
type Heart struct {
	w     http.ResponseWriter
	every time.Duration
	write time.Duration // the server's WriteTimeout, 0 = none
	body  *source       // nil = not one of ours

	mu     sync.Mutex  // held while w is written to: whoever waits for it could not write either
	timer  *time.Timer // nil = it does not beat
	header http.Header // the handler's: w's own is the beats' until the handler answers
	over   bool        // no beat any more
	closed bool        // nothing is written any more
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
// A Content-Encoding that the handler sets after a comment cannot be told any more: such an
// answer is left out, and an event named "error" says so.
//
// Clients of LLM APIs overlook an error whose form they do not know: a refusal that is to be seen
// by them has the Format that they read.
//
// The wait is not taken from the server's WriteTimeout: each comment starts it anew, and it
// runs from when the next one is due. every may be longer than it.
//
// On HTTP/1 there is no comment before the request's body is read to its end: net/http would
// take what is unread from the handler. Nobody knows that of a body that no middleware of this
// kind has handed out: such a one must have been read before.
//
// The handler must call Close when it has answered, and Cut in a defer, and must not use w
// itself before. w must be able to flush. HEAD gets no comments. Not for upgrades.
func Heartbeat(w http.ResponseWriter, r *http.Request, every time.Duration) *Heart {
	h := &Heart{w: w, every: every, body: bodyOf(r), header: w.Header().Clone()}
	if h.header == nil {
		h.header = http.Header{}
	}
	if every > 0 && r.Method != http.MethodHead {
		_, h.write = timeouts(r)
		if r.ProtoMajor == 2 { // there, a deadline that passes ends the stream before the comment
			h.extend()
		}
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
	h.extend()
	if !h.begun {
		h.begun = true
		to := h.w.Header()
		to.Del("Content-Length")
		to.Set("Content-Type", eventStream)
		to.Set("Cache-Control", "no-store")
		h.w.WriteHeader(http.StatusOK)
	}
	_, err := io.WriteString(h.w, comment)
	if err == nil {
		err = http.NewResponseController(h.w).Flush()
	}
	if err != nil { // the client has left, which the handler learns in its own way
		h.over = true
		return
	}
	h.timer.Reset(h.every)
}

// extend moves the write deadline for the next comment, or for the answer if that comes first.
func (h *Heart) extend() {
	if h.write > 0 {
		_ = http.NewResponseController(h.w).SetWriteDeadline(time.Now().Add(h.every + h.write)) // a writer without deadlines loses none
	}
}

const (
	eventStream = "text/event-stream"
	// comment has no empty line behind it: clients of LLM APIs have taken one for an event
	// without data, and failed.
	comment = ": queued\n"
)

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
	case interim && !h.said:
		before := h.w.Header().Clone() // a comment may follow
		h.sendLocked(status)
		h.copyLocked(before)
		return
	case h.said && !h.begun: // the second time is for the server to complain about
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
	switch coding := h.header.Get("Content-Encoding"); {
	case coding != "" && coding != h.w.Header().Get("Content-Encoding"):
		h.as = &lines{failed: true, dropped: true}
	case status >= 300 || t != eventStream:
		h.as = &lines{failed: status >= 400}
	}
}

// sendLocked sends a head with the handler's header.
func (h *Heart) sendLocked(status int) {
	h.copyLocked(h.header)
	h.w.WriteHeader(status)
}

// copyLocked makes w's header what header is.
func (h *Heart) copyLocked(header http.Header) {
	to := h.w.Header()
	maps.DeleteFunc(to, func(name string, _ []string) bool { return header[name] == nil })
	maps.Copy(to, header)
}

// trailersLocked passes on those that the handler has set. The rest of the header has been
// sent, and writers around the server's may have changed it for that.
func (h *Heart) trailersLocked() {
	to := h.w.Header()
	for name, v := range h.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			to[name] = v
		}
	}
	for _, list := range h.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if v := h.header[name]; v != nil {
				to[name] = v
			}
		}
	}
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

// Hijack takes the connection over from the server, as [http.Hijacker] says, and ends the
// comments: the end of a request whose client has left. Where it fails they go on.
func (h *Heart) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	conn, rw, err := http.NewResponseController(h.w).Hijack()
	if err == nil {
		h.stopLocked()
		h.closed = true
	}
	return conn, rw, err
}

// Unwrap is for [http.ResponseController].
func (h *Heart) Unwrap() http.ResponseWriter { return h.w }

// Close ends the comments, and the event that holds an answer of another kind. After it
// nothing touches w. Calling it again does nothing.
func (h *Heart) Close() { h.close(true) }

// Cut is Close for a handler that panics: an event is left open then, so that no client takes
// it for whole, and after comments alone one that is named "error" tells that there is no answer.
// It does nothing after Close.
func (h *Heart) Cut() { h.close(false) }

func (h *Heart) close(whole bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
	if h.closed {
		return
	}
	h.closed = true
	if !h.said && !h.begun {
		h.copyLocked(h.header) // nobody has written a head
		return
	}
	h.trailersLocked()
	var end []byte
	switch {
	case whole && h.as != nil:
		end = h.as.end()
	case !whole && !h.said:
		end = (&lines{failed: true}).end()
	}
	if len(end) > 0 {
		_, _ = h.w.Write(end) // a client that has left cannot be told
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
	failed  bool
	dropped bool // the text cannot be read by the client
	begun   bool
	cr      bool // the last byte was a carriage return
	buf     []byte
}

// put returns what to send for the next piece of the text. It is good until the next call.
func (l *lines) put(p []byte) []byte {
	l.buf = l.buf[:0]
	if l.dropped {
		return nil
	}
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
	if l.dropped {
		l.buf = append(l.buf, "the answer has an encoding, which this stream cannot have any more"...)
	}
	if l.begun {
		l.buf = append(l.buf, "\n\n"...)
	}
	return l.buf
}
