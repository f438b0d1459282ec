package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	protocol "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/monitor"
)

// hang is a guard against hanging, no more.
const hang = time.Minute

// browser is one headless Chromium with a fresh profile.
type browser struct{ ctx context.Context }

// startBrowser starts Chromium, or skips the test where there is none. Where
// HEADGATE_REQUIRE_CHROMIUM is 1 a missing Chromium is a failure.
func startBrowser(t *testing.T) browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		const missing = "no Chromium in PATH: install it to test the page (on Debian the package chromium)"
		if os.Getenv("HEADGATE_REQUIRE_CHROMIUM") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.WindowSize(1280, 1000),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("lang", "en-US"),
		chromedp.WSURLReadTimeout(hang))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it has to be gone before its profile is
		closeBrowser()
	})
	require.NoError(t, chromedp.Do(ctx)) // starts it
	return browser{ctx}
}

// tab is one tab, and what it complained about.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
	asked    []string // URLs
}

func (b browser) open(t *testing.T) *tab {
	t.Helper()
	p := &tab{t: t}
	ctx, closeTab := chromedp.NewContext(b.ctx, chromedp.WithListener(p.hear))
	t.Cleanup(closeTab)
	require.NoError(t, chromedp.Do(ctx)) // opens it
	ctx, cancel := context.WithTimeout(ctx, hang)
	t.Cleanup(cancel)
	p.ctx = ctx
	send(p, log.Enable, protocol.Empty{})
	send(p, network.Enable, network.EnableParams{})
	send(p, page.Enable, page.EnableParams{})
	return p
}

func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	problem := func(format string, args ...any) { p.problems = append(p.problems, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem("exception: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		problem("console.%s", e.Type)
	case *log.EventEntryAdded:
		problem("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *page.EventJavascriptDialogOpening:
		problem("a dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, steps...))
}

// send sends a command of the protocol.
func send[P, R any](p *tab, command protocol.Command[P, R], params P) R {
	p.t.Helper()
	r, err := chromedp.Call(p.ctx, command, params)
	require.NoError(p.t, err)
	return r
}

// eval returns what a JavaScript expression is.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	require.NoError(p.t, err, expression)
	return v
}

// script runs a statement of JavaScript.
func (p *tab) script(statement string) {
	p.t.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](statement))
}

// until waits for an expression to be true.
func (p *tab) until(expression string) {
	p.t.Helper()
	// The page's policy keeps chromedp.Poll out, which would build a function from a text.
	for end := time.Now().Add(hang / 2); !eval[bool](p, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s\nis not so; the page says\n%s", expression, eval[string](p, `document.body.innerText`))
		}
	}
}

// clean fails the test when the page complained or asked anybody but its server.
func (p *tab) clean(server string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.problems)
	require.NotEmpty(p.t, p.asked)
	for _, to := range p.asked {
		u, err := url.Parse(to)
		require.NoError(p.t, err)
		require.True(p.t, u.Scheme == "data" || u.Scheme+"://"+u.Host == server, "asked %s", to)
	}
}

// site is a server with a monitor over some gates.
type site struct {
	*httptest.Server
	hg      *headgate.Headgate
	address string // of the page
	reports atomic.Int64
}

// serveGates serves the page over gates that are shut down when the test ends.
func serveGates(t *testing.T, set func(*headgate.Config, *monitor.Config)) *site {
	t.Helper()
	c, m := config(), monitor.DefaultConfig()
	m.Period = 500 * time.Millisecond
	m.History = 5 * time.Minute
	if set != nil {
		set(&c, &m)
	}
	hg, err := headgate.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		require.NoError(t, hg.Shutdown(ctx, nil))
	})
	return serveHeadgate(t, hg, m)
}

func serveHeadgate(t *testing.T, hg *headgate.Headgate, c monitor.Config) *site {
	t.Helper()
	h, err := monitor.New(hg, c)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	s := &site{hg: hg}
	mux := http.NewServeMux()
	mux.HandleFunc("/headgate/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/status") {
			s.reports.Add(1)
		}
		h.ServeHTTP(w, r)
	})
	mux.Handle("/bare", http.StripPrefix("/bare", h))
	mux.Handle("/bare/", http.StripPrefix("/bare", h))
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	s.address = s.URL + "/headgate/"
	return s
}

// storm keeps n callers at a lane until it is called off: they hold a slot or wait for one.
func (s *site) storm(t *testing.T, lane string, class gate.Class, n int) (off func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			if slot, err := s.hg.Outbound.Acquire(ctx, gate.Request{Lane: lane, Class: class}); err == nil {
				<-ctx.Done()
				slot.Release()
			}
		})
	}
	off = sync.OnceFunc(func() {
		cancel()
		callers.Wait()
	})
	t.Cleanup(off)
	return off
}

// cell is the text of a lane's cell that has a label.
func cell(lane, label string) string {
	return fmt.Sprintf(`([...document.querySelectorAll("#lanes-table tbody tr")].find(r => r.querySelector("th").textContent === %q)
		?.querySelector('[data-label=%q]')?.textContent ?? "")`, lane, label)
}
