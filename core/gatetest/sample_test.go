package gatetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// sample is a small adapter for net/http. Without a bug it holds the contract; with
// one, it breaks it in one place.
type sample struct {
	bug  string
	poor bool // it has every deviation that can be declared
	peek bool // it reads the beginning of a body first
	kept *leftovers
	late time.Duration // by which the first requests of an app come to its gate
}

// leftovers are what two of the bugs share among requests.
type leftovers struct {
	mu    sync.Mutex
	flows []string
}

func (a sample) has(bug string) bool { return a.bug == bug }

func (a sample) start(l net.Listener, o Options) Server {
	a.kept = new(leftovers)
	mux := http.NewServeMux()
	app := a.app(o, mux)
	for _, route := range Routes() {
		pattern := string(route)
		if route == Item {
			pattern += "{id}"
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			x := &sampleExchange{HTTP: HTTP{w, r}, a: a, app: app}
			if err := o.Handle(route, a.exchange(x)); err != nil && !x.Refuse(err) {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
	}
	if a.poor && o.TLS != nil {
		l, o.TLS = tls.NewListener(l, o.TLS), nil // without HTTP/2
	}
	return Serve(l, o, a.delayed(app))
}

// delayed is h on a machine that is busy at first.
func (a sample) delayed(h http.Handler) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.late > 0 && n.Add(1) <= 3 {
			time.Sleep(a.late) // it plays a machine that is slow on real sockets
		}
		h.ServeHTTP(w, r)
	})
}

// app is the app as Options describes it.
func (a sample) app(o Options, h http.Handler) http.Handler {
	if o.Inner != nil {
		h = a.middleware(Options{Gate: o.Inner, OnDecision: func(Decision) {}}, h)
	}
	if routes := h; o.Auth != nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, ok := o.Auth(r.Context(), r.Header.Get)
			if !ok {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			routes.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	h = a.middleware(o, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer o.Recover(func() { w.WriteHeader(http.StatusInternalServerError) })
		w.Header().Set("Access-Control-Allow-Origin", "*")
		h.ServeHTTP(w, r)
	})
}

func (a sample) middleware(o Options, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if a.has("skips by prefix") {
			path = strings.TrimSuffix(path, "/")
		}
		_, held := gate.LeaseOf(r.Context(), o.Gate)
		if a.has("keeps its mark") {
			held = r.Context().Value(markKey{}) == o.Gate
		}
		if held && !a.has("admits again") || o.Skip != nil && o.Skip(path) {
			next.ServeHTTP(w, r)
			return
		}
		var buffered int64
		if a.poor {
			var ok bool
			if r, buffered, ok = buffer(w, r); !ok {
				return
			}
		}
		if a.peek {
			r, buffered = prefetch(r)
		}
		q := a.request(o, r)
		q.Buffered = buffered
		lease, err := a.acquire(w, r, o.Gate, q)
		a.tell(o, q, lease, err)
		a.timing(w, o, lease, err)
		if err == nil && !lease.Live() && a.has("wants a live lease") {
			err = &gate.Rejection{Reason: "failed", Gate: "sample"}
		}
		if err != nil {
			if err = a.told(r, err); err != nil {
				a.answer(w, r, err, o.Format)
			}
			if !a.has("goes on after a refusal") {
				return
			}
		}
		a.serve(w, r, o, lease, next)
	})
}

// serve runs the handler under its lease.
func (a sample) serve(w http.ResponseWriter, r *http.Request, o Options, lease gate.Lease, next http.Handler) {
	switch a.bug {
	case "releases without defer":
		defer func() {}()
	case "releases too early":
		lease.Release()
	case "releases when the body ends":
		if !a.hasBody(r) {
			defer lease.Release()
		}
	case "swallows panics":
		defer func() { _ = recover() }()
		defer lease.Release()
	case "wraps panics":
		defer func() {
			if v := recover(); v != nil {
				panic(errors.Join(errors.New("handler"), http.ErrAbortHandler))
			}
		}()
		defer lease.Release()
	default:
		defer lease.Release()
	}
	ctx := context.WithValue(lease.In(r.Context(), o.Gate), markKey{}, o.Gate)
	if o.Format != gate.Problem && !a.has("forgets the format") {
		ctx = context.WithValue(ctx, formatKey{}, o.Format)
	}
	in := r
	switch a.bug {
	case "wraps the body in place":
	case "clones the request":
		in = r.Clone(ctx)
	default:
		in = r.WithContext(ctx)
	}
	if s := a.wrap(w, in, lease, true); s != nil {
		defer s.leave()
	}
	if a.has("wraps the body in place") {
		in = r.WithContext(ctx)
	}
	if a.has("wraps the writer") {
		w = struct{ http.ResponseWriter }{w}
	}
	if a.has("wraps the writer with Unwrap") {
		w = &unwrapping{w, false}
	}
	next.ServeHTTP(w, in)
	if a.has("releases without defer") {
		lease.Release()
	}
}

// unwrapping is a recorder of statuses, as many middlewares have one.
type unwrapping struct {
	http.ResponseWriter
	wrote bool
}

func (w *unwrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *unwrapping) Flush()                      { w.ResponseWriter.(http.Flusher).Flush() }
func (w *unwrapping) WriteHeader(status int) {
	if !w.wrote {
		w.wrote = true
		w.ResponseWriter.WriteHeader(status)
	}
}

type (
	formatKey struct{}
	markKey   struct{}
)

// request is what the gate is asked.
func (a sample) request(o Options, r *http.Request) gate.Request {
	q := gate.Request{Method: a.method(r), Route: r.Pattern, Path: r.URL.Path, ContentType: r.Header.Get("Content-Type")}
	if a.hasBody(r) {
		q.Bytes = r.ContentLength
	}
	if a.has("asks with the raw path as route") {
		q.Route = r.URL.Path
	}
	if a.has("asks for a byte more") && q.Bytes > 0 {
		q.Bytes++
	}
	if !a.has("overlooks the context's flow") {
		q = q.In(r.Context())
	}
	switch {
	case o.Flow != nil && !a.has("overlooks the flow that is set"):
		q.Flow = o.Flow(r.Header.Get)
	case q.Flow == "":
		q.Flow = gate.PeerFlow(r.RemoteAddr)
	}
	if ip := r.Header.Get("X-Forwarded-For"); ip != "" && a.has("trusts X-Forwarded-For") {
		q.Flow = ip
	}
	if r.Header.Get("X-Priority") != "" && a.has("trusts X-Priority") {
		q.Class = gate.Interactive
	}
	if a.has("tells no content type") {
		q.ContentType = ""
	}
	return q
}

func (a sample) method(r *http.Request) string {
	switch r.Method {
	case http.MethodPatch, http.MethodTrace:
		if a.has("knows few methods") {
			return "other"
		}
		return r.Method
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodConnect, http.MethodOptions:
		return r.Method
	}
	if a.has("labels with the raw method") {
		return r.Method
	}
	return "other"
}

func (a sample) tell(o Options, q gate.Request, lease gate.Lease, err error) {
	d := Decision{Method: q.Method, Route: q.Route, Waited: lease.Waited(), Err: err}
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
		d.Waited = rej.Waited
	}
	if d.Route == "" {
		d.Route = "unmatched"
	}
	if a.has("labels with the raw path") {
		d.Route = q.Path
	}
	if a.has("tells no refusals") && err != nil {
		return
	}
	if a.has("tells twice") {
		o.OnDecision(d)
	}
	o.OnDecision(d)
}

// buffer reads the body whole, as servers do that know no streams, trailers aside.
func buffer(w http.ResponseWriter, r *http.Request) (*http.Request, int64, bool) {
	in := r.WithContext(context.WithoutCancel(r.Context()))
	in.Trailer = nil
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return in, 0, true
	}
	p, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusRequestTimeout)
		return nil, 0, false
	}
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(p)), int64(len(p))
	in.Trailer = nil
	return in, int64(len(p)), true
}

// poorExchange is an exchange of a framework without writers, trailers and interim
// answers.
type poorExchange struct{ Exchange }

func (x poorExchange) SetTrailer(string, string) {}
func (x poorExchange) Reply(status int, body string) {
	if status >= 200 {
		x.Exchange.Reply(status, body)
	}
}

func (a sample) exchange(x *sampleExchange) Exchange {
	if a.poor {
		return poorExchange{x}
	}
	return x
}

// sampleExchange is a request in the words of this adapter.
type sampleExchange struct {
	HTTP
	a   sample
	app http.Handler
}

func (x *sampleExchange) Context() context.Context {
	if x.a.has("hands out another context") {
		return context.Background()
	}
	return x.R.Context()
}

func (x *sampleExchange) Acquire(g gate.Gate, q gate.Request) error {
	if _, held := gate.LeaseOf(x.R.Context(), g); held {
		return nil
	}
	mine := x.a.request(Options{}, x.R)
	q.Method, q.Path, q.Bytes = mine.Method, mine.Path, mine.Bytes
	lease, err := x.a.acquire(x.W, x.R, g, q)
	if err == nil {
		x.R = x.R.WithContext(lease.In(x.R.Context(), g))
		if !x.a.has("asks inside without the body") {
			x.a.wrap(x.W, x.R, lease, x.a.has("moves deadlines of others"))
		}
	}
	return err
}

func (x *sampleExchange) Release(g gate.Gate) {
	if x.a.has("has a Release that does nothing") {
		return
	}
	lease, _ := gate.LeaseOf(x.R.Context(), g)
	lease.Release()
}

func (x *sampleExchange) SetClass(c gate.Class) {
	x.R = x.R.WithContext(gate.WithClass(x.R.Context(), c))
}

func (x *sampleExchange) Refuse(err error) bool {
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej == nil && !x.a.has("refuses for nothing") {
		return false
	}
	if err != error(rej) && x.a.has("does not look into errors") { //nolint:errorlint // that is the bug
		return false
	}
	f, _ := x.R.Context().Value(formatKey{}).(gate.Format)
	x.a.answer(x.W, x.R, rej, f)
	return true
}

func (x *sampleExchange) Redispatch(to Route) error {
	again := x.R.Clone(x.R.Context())
	again.URL.Path = string(to)
	x.app.ServeHTTP(x.W, again)
	return nil
}

// sampleBody is a body as handlers read it.
type sampleBody struct {
	io.ReadCloser
	*sampleSource
}

func (b *sampleBody) Read(p []byte) (int, error) { return b.ReadCloser.Read(p) }
func (b *sampleBody) Close() error               { return b.ReadCloser.Close() }

// sampleSource is the body below, and its connection's read deadline.
type sampleSource struct {
	a   sample
	raw io.ReadCloser
	w   http.ResponseWriter
	one bool // HTTP/1

	mu                sync.Mutex
	left, over, fresh bool
	end               time.Time
	atEnd             func()
}

// timing tells how long a request waited.
func (a sample) timing(w http.ResponseWriter, o Options, lease gate.Lease, err error) {
	if !o.ServerTiming && !a.has("always tells the wait") {
		return
	}
	waited := lease.Waited()
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) && !a.has("tells no wait of who is refused") {
		waited = rej.Waited
	}
	w.Header().Add("Server-Timing", gate.ServerTiming(waited))
}
