package clientwrap

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-go/headgate/core/inflight"
)

// hostLane is a lane by scheme and host.
type hostLane struct{ scheme, host, key string }

// hostKey returns the lane of a URL without a Lane function.
func (t *Transport) hostKey(u *url.URL) string {
	if u == nil {
		return ""
	}
	if h := t.host.Load(); h != nil && h.scheme == u.Scheme && h.host == u.Host {
		return h.key
	}
	h := &hostLane{strings.Clone(u.Scheme), strings.Clone(u.Host), keyOf(u)} // a whole URL would stay in memory
	t.host.Store(h)
	return h.key
}

// keyOf returns the lane of a URL's host. User, password, path and query stay out of it.
func keyOf(u *url.URL) string { return inflight.HostKey(u.Scheme + "://" + u.Host) }

// Bounds of what is read to find a model.
const (
	maxScan = 1 << 20  // of a body that can be had again
	maxPeek = 64 << 10 // of one that cannot, and must be kept meanwhile
)

// LaneByModel returns a Config.Lane: the lane is [inflight.LaneKey] of base, of the
// model that the request's JSON body names, and of models, the known ones. base is the
// back end's base URL, the same that is handed to [inflight.Limiter.Do]; "" takes
// scheme and host of each request.
//
// The model is the first string under the key "model" of the outermost object. It is
// looked for in the first MiB of a body that can be had again (Request.GetBody) and the
// first 64 KiB of one that cannot, which stay in memory while the request waits and are
// then sent on; a sender that is slow with those is waited for without a slot, until the
// request's context ends. No model there, or one that is not known, reads "other". Without
// models no body is read.
func LaneByModel(base string, models ...string) func(*http.Request) string {
	models = slices.Clone(models)
	keys := make(map[string]string, len(models))
	for _, m := range models {
		keys[m] = inflight.LaneKey(base, m, models)
	}
	rest := inflight.LaneKey(base, "", nil)
	return func(r *http.Request) string {
		var model string
		if len(models) > 0 { // else nothing depends on it, and the body stays unread
			model = modelOf(r)
		}
		switch {
		case base == "" && r.URL == nil:
			return "" // the base says what it thinks of that
		case base == "":
			return inflight.LaneKey(keyOf(r.URL), model, models)
		}
		if key, ok := keys[model]; ok {
			return key
		}
		return rest
	}
}

// modelOf returns the model that r's body names, "" if it finds none. It may replace
// r.Body by one that reads the same.
func modelOf(r *http.Request) string {
	if r.Body == nil || r.Body == http.NoBody {
		return ""
	}
	if r.GetBody != nil {
		again, err := r.GetBody()
		if err != nil {
			return ""
		}
		defer again.Close()
		model, _ := readModel(again, maxScan)
		return model
	}
	p := &peeked{inner: r.Body}
	r.Body = p
	return p.look(r.Context())
}

// peeked is a request's body whose beginning has been read already.
type peeked struct {
	inner io.ReadCloser
	kept  []byte
	err   error // what the last Read of inner has said
	once  sync.Once
	fail  error // of Close
}

// look reads the beginning and returns the model in it. When the context ends it gives
// up and has the body closed, whatever a Read does meanwhile: not every body lets Close
// end it, and that of a server's request does not even let Close return.
func (p *peeked) look(ctx context.Context) string {
	if ctx.Done() == nil {
		b := begin(p.inner)
		p.kept, p.err = b.kept, b.err
		return b.model
	}
	read := make(chan beginning, 1)
	go func() { // ends with a Read at the latest, as a transport's writer does
		b := beginning{err: io.ErrUnexpectedEOF} // where Read ends the goroutine
		defer func() {
			b.panicked = recover()
			read <- b
		}()
		b = begin(p.inner)
	}()
	select {
	case b := <-read:
		if b.panicked != nil {
			panic(b.panicked) // as if it had been read here
		}
		p.kept, p.err = b.kept, b.err
		return b.model
	case <-ctx.Done():
		p.err = context.Cause(ctx)
		p.once.Do(func() { go func() { _ = p.inner.Close() }() })
		return ""
	}
}

// beginning is what was read of a body.
type beginning struct {
	model    string
	kept     []byte
	err      error // what the last Read has said
	panicked any
}

func begin(r io.Reader) (b beginning) {
	var kept bytes.Buffer
	b.model, b.err = readModel(io.TeeReader(r, &kept), maxPeek)
	b.kept = kept.Bytes()
	return b
}

// Read returns the beginning, then the rest.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.kept) > 0 {
		n := copy(b, p.kept)
		p.kept = p.kept[n:]
		return n, nil
	}
	if p.err != nil {
		return 0, p.err
	}
	return p.inner.Read(b)
}

// Close closes the body, once.
func (p *peeked) Close() error {
	p.once.Do(func() { p.fail = p.inner.Close() })
	return p.fail
}
