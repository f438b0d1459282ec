package monitor

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/core/pressure"
)

//go:embed page.html
var pageFile string

// Handler serves the reports and the page. Use [New]. All methods are safe for concurrent
// use.
type Handler struct {
	config Config
	gates  headgate.Headgate
	page   []byte
	policy string // the page's Content-Security-Policy

	recorder  recorder
	closeOnce sync.Once
	stop      chan struct{}
	stopped   chan struct{} // the sampler has ended
}

// New returns a handler over the gates that hg has now; a nil field is a gate that there
// is not. The error names the field of c that is wrong, or says that hg is nil; nothing was
// started then. New takes a first sample and starts one goroutine, which Close ends.
func New(hg *headgate.Headgate, c Config) (*Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if hg == nil {
		return nil, errors.New("monitor: hg is nil: want what headgate.Open returned, or a Headgate with the gates that there are")
	}
	page, policy, err := pageOf(pageFile)
	if err != nil {
		return nil, err
	}
	h := &Handler{config: c, gates: *hg, page: page, policy: policy, stop: make(chan struct{}), stopped: make(chan struct{})}
	h.recorder.init(&h.gates, c)
	go h.run()
	return h, nil
}

// Close ends the sampling, and returns when no sample is being taken any more. Requests
// are still answered, with the history as it is by then. Calling it again does nothing.
func (h *Handler) Close() {
	h.closeOnce.Do(func() { close(h.stop) })
	<-h.stopped
}

// ServeHTTP answers 200 with a report or the page, 403 to whom Config.Authorize does not let
// in, 404 for what there is not, and 405 for a method other than GET and HEAD. It
// writes no log, and holds no gate's lock for longer than its Snapshot does.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	switch {
	case !h.allowed(r):
		h.refuse(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, r, http.StatusMethodNotAllowed, textType, []byte("headgate: want GET or HEAD\n"))
		return
	}
	var report any
	switch r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] {
	case "":
		w.Header().Set("Content-Security-Policy", h.policy)
		answer(w, r, http.StatusOK, "text/html; charset=utf-8", h.page)
		return
	case "status":
		report = h.status()
	case "inflight":
		report = h.inflight()
	case "history":
		report = h.recorder.report(h.config)
	default:
		answer(w, r, http.StatusNotFound, textType, []byte("headgate: want status, inflight, history, or the page at the path's slash\n"))
		return
	}
	body, err := json.Marshal(report)
	if err != nil {
		answer(w, r, http.StatusInternalServerError, textType, []byte("headgate: this report cannot be written\n"))
		return
	}
	answer(w, r, http.StatusOK, "application/json", append(body, '\n'))
}

func (h *Handler) allowed(r *http.Request) bool {
	if h.config.Authorize != nil {
		return h.config.Authorize(r)
	}
	return Loopback(r)
}

// refuse says what can be done. It says the same to everyone: which part of the rule
// failed is nobody's business.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request) {
	text := "headgate: not allowed\n"
	if h.config.Authorize == nil {
		text = "headgate: only a client on this machine may look, by a loopback address and not through a proxy. " +
			"Use a tunnel, or set Authorize in monitor.Config.\n"
	}
	answer(w, r, http.StatusForbidden, textType, []byte(text))
}

// status is headgate.Snapshot without the gates that there are not.
type status struct {
	Admission *admission.Snapshot `json:"admission,omitempty"`
	Pressure  *pressure.Snapshot  `json:"pressure,omitempty"`
	Lanes     *lanes.Snapshot     `json:"lanes,omitempty"`
	Inflight  *inflight.Snapshot  `json:"inflight,omitempty"`
}

func (h *Handler) status() status {
	var s status
	if b := h.gates.Bytes; b != nil {
		s.Admission = ptr(b.Snapshot())
	}
	if m := h.gates.Memory; m != nil {
		s.Pressure = ptr(m.Snapshot())
	}
	if t := h.gates.Tenants; t != nil {
		s.Lanes = ptr(t.Snapshot())
	}
	if o := h.gates.Outbound; o != nil {
		s.Inflight = ptr(o.Snapshot())
	}
	return s
}

func (h *Handler) inflight() inflight.Snapshot {
	if h.gates.Outbound == nil {
		return inflight.Snapshot{} // {"enabled": false}
	}
	return h.gates.Outbound.Snapshot()
}

func ptr[T any](v T) *T { return &v }

const textType = "text/plain; charset=utf-8"

// secure sets what every answer has.
func secure(header http.Header) {
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
}

func answer(w http.ResponseWriter, r *http.Request, code int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that left needs no answer
	}
}

// pageOf returns the page as it is served, and a policy that lets it run its own script
// and style and fetch from its own origin, and nothing else. The hashes are made here, of what
// is served, so that they fit.
func pageOf(file string) (page []byte, policy string, err error) {
	// A checkout can have changed the line ends. Browsers hash what they have read, and
	// they read every line end as \n.
	text := strings.ReplaceAll(file, "\r\n", "\n")
	script, err := hashOf(text, "script")
	if err != nil {
		return nil, "", err
	}
	style, err := hashOf(text, "style")
	if err != nil {
		return nil, "", err
	}
	policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "+
		"require-trusted-types-for 'script'; trusted-types 'none'", script, style)
	return []byte(text), policy, nil
}

// hashOf returns the hash source of the only element with that name, which has no
// attributes.
func hashOf(page, element string) (string, error) {
	_, in, found := strings.Cut(page, "<"+element+">")
	in, rest, closed := strings.Cut(in, "</"+element+">")
	if !found || !closed || strings.Contains(rest, "<"+element) {
		return "", fmt.Errorf("monitor: the page has not exactly one <%s>", element)
	}
	sum := sha256.Sum256([]byte(in))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:]), nil
}
