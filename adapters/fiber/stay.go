package fibergate

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/headgate-go/headgate/adapters/fiber/internal/fast"
	"github.com/headgate-go/headgate/core/gate"
)

// stay is a request's time within its gates. It is a user value of the request, and
// fasthttp closes it when the response, with its stream or hijacked connection, has
// ended.
type stay struct {
	rc     *fasthttp.RequestCtx
	srv    *fasthttp.Server
	length int64       // of the body; -1 = unknown, 0 = there is none
	body   body        // as the handler reads it
	source *source     // as fasthttp hands it out; nil where there is none
	path   string      // copied already
	peer   string      // the peer's flow, "" = not asked for yet
	format gate.Format // for refusals in the handler
	owned  bool        // a middleware will see the handler return
	over   bool        // it has been closed

	leases []gate.Lease // for the end of the response
	few    [2]gate.Lease
}

type stayKey struct{}

// stayOf returns the stay of c, a new one where there is none or the last one is over.
func stayOf(c *fiber.Ctx) *stay {
	rc := c.Context()
	old, _ := rc.UserValue(stayKey{}).(*stay)
	if old != nil && !old.over {
		return old
	}
	s := &stay{rc: rc, srv: c.App().Server()}
	s.leases = s.few[:0]
	s.measure()
	if old != nil {
		s.format = old.format
		if s.source != nil && old.source != nil {
			s.source.continues(old.source)
		}
	}
	rc.SetUserValue(stayKey{}, s)
	return s
}

// own reports whether the caller is the outermost middleware, which calls leave.
func (s *stay) own() bool {
	first := !s.owned
	s.owned = true
	return first
}

// ask puts q to g, with what q leaves open taken from the request and from ctx, and the
// peer's flow where there is none then and peer is set.
func (s *stay) ask(ctx context.Context, c *fiber.Ctx, g gate.Gate, q *gate.Request, peer bool) (gate.Lease, error) {
	if q.Method == "" {
		q.Method = fast.Method(s.rc)
	}
	if q.Path == "" {
		if p := c.Path(); s.path != p {
			s.path = strings.Clone(p)
		}
		q.Path = s.path
	}
	if s.source != nil {
		if q.Bytes == 0 {
			q.Bytes = s.length
		}
		if q.Buffered == 0 {
			q.Buffered = s.source.memory
		}
		if q.ContentType == "" {
			q.ContentType = string(s.rc.Request.Header.ContentType())
		}
	}
	switch *q = q.In(ctx); {
	case q.Flow != "":
		q.Flow = strings.Clone(q.Flow)
	case peer:
		if s.peer == "" {
			s.peer = fast.Peer(s.rc)
		}
		q.Flow = s.peer
	}
	return fast.Ask(ctx, s.rc, g, *q)
}

// hold keeps a lease for the end of the response, and has the body read under it: by the
// reader that it returns, nil where the lease has none.
func (s *stay) hold(l gate.Lease) *leased {
	s.leases = append(s.leases, l)
	if s.source == nil {
		return nil
	}
	if l.Waited() > 0 {
		s.source.restart(max(s.srv.ReadTimeout, 0))
	}
	var below io.ReadCloser = s.source
	if s.body.ReadCloser != nil {
		below = s.body.ReadCloser
	}
	var deadlines func(time.Time) error
	if s.source.raw != nil {
		deadlines = s.source.setReadDeadline
	}
	rc := l.Body(below, deadlines)
	if rc == below {
		s.body.ReadCloser = rc
		return nil
	}
	r := &leased{rc, s.source}
	s.body.ReadCloser = r
	return r
}

// leave runs when the handler is done, by returning or not.
func (s *stay) leave(l *fast.Linger, returned bool) {
	s.owned = false
	if fast.Finished(s.rc) || !returned {
		defer s.Close()
		s.endUnread(l)
		return
	}
	s.endUnread(l)
	fast.Guard(s.rc, s, s.leases...)
}

// endUnread sees to it that nothing which is left of the body is taken for a request.
// A response stream may want to read it yet.
func (s *stay) endUnread(l *fast.Linger) {
	b := s.source
	if b == nil || !b.unread() || fast.Finished(s.rc) && b.atEnd() {
		return
	}
	l.Close(s.rc, max(s.srv.WriteTimeout, 0), b.finish)
}

// Close ends the stay. Whoever is reading the body still is interrupted. It is called by
// the goroutine that has the request: the handler's, and later fasthttp's own.
func (s *stay) Close() error {
	if s.over {
		return nil
	}
	s.over = true
	defer fast.Release(s.leases)
	if s.source != nil {
		s.source.finish()
	}
	return nil
}

// measure finds out about the body.
func (s *stay) measure() {
	n := fast.Length(&s.rc.Request.Header)
	if n == 0 {
		return
	}
	raw := s.rc.RequestBodyStream()
	if n < 0 && raw == nil {
		n = len(s.rc.Request.Body()) // which has arrived
	}
	if s.length = int64(n); n != 0 {
		s.source = newSource(s.rc, raw, s.length, s.srv.MaxRequestBodySize)
	}
}
