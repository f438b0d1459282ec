package main

import (
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/monitor"
)

const live = `document.getElementById("link").textContent === "Live"`

func TestPage(t *testing.T) {
	if raceEnabled {
		t.Skip("looks at the page in Chromium for some 40 s: left out by -race; the tests of core/monitor race its handler")
	}
	b := startBrowser(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, browser)
	}{
		{"a storm is seen", stormIsSeen},
		{"a degraded back end is seen", degradedIsSeen},
		{"refusals are seen", refusalsAreSeen},
		{"hostile names are text", hostileNamesAreText},
		{"the policy holds", policyHolds},
		{"a thousand lanes", thousandLanes},
		{"gates that there are not", absentGates},
		{"any path", anyPath},
		{"keyboard", keyboard},
		{"names for a screen reader", accessibleNames},
		{"narrow and zoomed", narrowAndZoomed},
		{"light and dark", lightAndDark},
		{"pause", pauses},
		{"hidden", hides},
		{"lost and found", lostAndFound},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, b) })
	}
}

// visit opens the page of s and waits for its first numbers.
func (b browser) visit(t *testing.T, s *site) *tab {
	t.Helper()
	p := b.open(t)
	p.do(chromedp.Navigate(s.address))
	p.until(live)
	return p
}

func stormIsSeen(t *testing.T, b browser) {
	s := serveGates(t, func(c *headgate.Config, _ *monitor.Config) {
		c.Inflight.QueueTimeout = hang
		c.Inflight.SlowWait = time.Second
	})
	p := b.visit(t, s)
	p.until(`document.getElementById("lanes-note").textContent === "No call has been made yet."`)

	few := s.storm(t, large, gate.Interactive, 2)
	p.until(cell(large, "In flight") + ` === "2 of 8"`)
	p.until(cell(large, "Verdict") + `.startsWith("busy")`)
	few()
	off := s.storm(t, large, gate.Bulk, 30)
	p.until(cell(large, "In flight") + ` === "7 of 8"`) // one is kept for interactive calls
	p.until(cell(large, "Waiting, bulk") + ` === "23"`)
	require.Equal(t, "0", eval[string](p, cell(large, "Waiting, interactive")))
	p.until(cell(large, "Verdict") + `.startsWith("local_queue")`)
	require.Contains(t, eval[string](p, cell(large, "Verdict")), "Raise MaxInflight for this lane if the back end can serve more, or send less.")
	p.until(fmt.Sprintf(`document.getElementById("news").textContent.includes(%q)`, "Lane "+large+" is local_queue now."))
	off()
	p.until(cell(large, "Waiting, bulk") + ` === "0"`)
	p.until(cell(large, "In flight") + ` === "0 of 8"`)
	p.clean(s.URL)
}

func degradedIsSeen(t *testing.T, b browser) {
	s := serveGates(t, nil)
	p := b.visit(t, s)
	for range 10 {
		slot, err := s.hg.Outbound.Acquire(t.Context(), gate.Request{Lane: vectors})
		require.NoError(t, err)
		gate.Observe(slot.In(t.Context(), s.hg.Outbound), gate.Sample{Status: 503, FirstByte: time.Millisecond})
		slot.Release()
	}
	p.until(cell(vectors, "Verdict") + `.startsWith("upstream_degraded")`)
	require.Contains(t, eval[string](p, cell(vectors, "Verdict")), "Raising MaxInflight does not help: look at the back end.")
	p.clean(s.URL)
}

func refusalsAreSeen(t *testing.T, b browser) {
	s := serveGates(t, nil)
	p := b.visit(t, s)
	p.until(`document.getElementById("refusals-fig").textContent === "Nothing was refused"`)
	for range 3 {
		_, err := s.hg.Bytes.Acquire(t.Context(), gate.Request{Bytes: 1 << 40})
		require.ErrorIs(t, err, gate.PayloadTooLarge)
	}
	p.until(`document.getElementById("refusals-fig").textContent === "3 refusals"`)
	require.Equal(t, "payload_too_largebytes", eval[string](p, `document.querySelector("#refusals-table tbody th").textContent`))
	lease, err := s.hg.Bytes.Acquire(t.Context(), gate.Request{Bytes: 12 << 20})
	require.NoError(t, err)
	defer lease.Release()
	p.until(`document.getElementById("bytes-fig").textContent.startsWith("12 MiB of 64 MiB")`)
	p.until(`document.getElementById("bytes-bar").getAttribute("aria-valuetext") === "12 MiB of 64 MiB"`)
	p.clean(s.URL)
}

// What others may choose is text on the page, whatever it looks like.
func hostileNamesAreText(t *testing.T, b browser) {
	const hostile = `<img src=x onerror=alert(1)>`
	s := serveGates(t, func(_ *headgate.Config, c *monitor.Config) { c.Title = `</title><script>alert(2)</script>` })
	lanes := []string{hostile, `"><svg onload=alert(3)>`, "__proto__", "constructor", "\u202edesrever"}
	for _, lane := range lanes {
		s.storm(t, lane, gate.Interactive, 1)
	}
	p := b.visit(t, s)
	p.until(`document.querySelectorAll("#lanes-table tbody tr").length === 5`)
	names := eval[[]string](p, `[...document.querySelectorAll("#lanes-table tbody th")].map(e => e.textContent)`)
	require.ElementsMatch(t, lanes, names)
	require.Equal(t, `</title><script>alert(2)</script>`, eval[string](p, `document.getElementById("title").textContent`))
	require.Zero(t, eval[int](p, `document.querySelectorAll("img, [onerror], [onload], main script").length`))
	require.Equal(t, 1, eval[int](p, `document.scripts.length`))
	p.clean(s.URL)
}

// Even a mistake in the page could not make HTML or a script of what it is told.
func policyHolds(t *testing.T, b browser) {
	p := b.visit(t, serveGates(t, nil))
	require.True(t, eval[bool](p, `(() => { try { document.body.innerHTML = "<b>x</b>"; return false } catch (e) { return e instanceof TypeError } })()`))
	require.True(t, eval[bool](p, `(() => { const s = document.createElement("script"); s.append("globalThis.ran = 1"); document.body.append(s);
		return globalThis.ran === undefined })()`))
	p.script(`fetch("http://127.0.0.1:1/").catch(() => { globalThis.refused = true })`)
	p.until(`globalThis.refused === true`)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotContains(t, p.asked, "http://127.0.0.1:1/")
}

func thousandLanes(t *testing.T, b browser) {
	s := serveGates(t, nil)
	for i := range 1000 {
		lane := fmt.Sprintf("https://backend-%03d.example.com", i)
		slot, err := s.hg.Outbound.Acquire(t.Context(), gate.Request{Lane: lane})
		require.NoError(t, err)
		if i == 777 {
			defer slot.Release()
			s.storm(t, lane, gate.Bulk, 20)
		} else {
			slot.Release()
		}
	}
	p := b.visit(t, s)
	p.until(`document.querySelectorAll("#lanes-table tbody tr").length === 50`)
	p.until(`document.getElementById("lanes-more").textContent.startsWith("These are the 50 busiest; 950 more lanes not shown.")`)
	p.until(`document.querySelector("#lanes-table tbody th").textContent === "https://backend-777.example.com"`)
	p.clean(s.URL)
}

func absentGates(t *testing.T, b browser) {
	s := serveHeadgate(t, &headgate.Headgate{}, monitor.DefaultConfig())
	p := b.visit(t, s)
	for id, want := range map[string]string{
		"lanes-note": "no gate for outbound calls", "bytes-note": "no gate for request bodies", "pressure-note": "no watch over the memory",
		"limit-note": "no gate for tenants", "refusals-fig": "Nothing was refused",
	} {
		require.Contains(t, eval[string](p, fmt.Sprintf(`document.getElementById(%q).textContent`, id)), want)
	}
	p.clean(s.URL)
}

// The page finds its reports without the slash at the end of its path, too.
func anyPath(t *testing.T, b browser) {
	s := serveGates(t, nil)
	for _, path := range []string{"/bare", "/bare/", "/headgate/?x=1#y"} {
		s.address = s.URL + path
		p := b.visit(t, s)
		p.clean(s.URL)
	}
}

func keyboard(t *testing.T, b browser) {
	s := serveGates(t, nil)
	_, err := s.hg.Bytes.Acquire(t.Context(), gate.Request{Bytes: 1 << 40}) // so that there is a table of refusals
	require.Error(t, err)
	p := b.visit(t, s)
	p.until(`!document.getElementById("refusals-data").hidden`)
	want := eval[[]string](p, `[...document.querySelectorAll("button, summary")].map(e => e.textContent)`)
	require.Len(t, want, 5)
	for i, label := range want {
		p.do(chromedp.KeyEvent(kb.Tab))
		require.Equal(t, label, eval[string](p, `document.activeElement.textContent.slice(0, 100)`), "Tab %d", i+1)
		require.NotEqual(t, "none", eval[string](p, `getComputedStyle(document.activeElement).outlineStyle`), "%s: no focus to be seen", label)
	}
	// The last summary has the focus: it opens, and its table can be scrolled.
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.activeElement.parentElement.open && document.activeElement.parentElement.querySelectorAll("tbody tr").length > 0`)
	p.do(chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "region", eval[string](p, `document.activeElement.getAttribute("role")`))
	p.clean(s.URL)
}

// The tree that a screen reader goes through has the panels, the tables and the pictures, with names.
func accessibleNames(t *testing.T, b browser) {
	s := serveGates(t, nil)
	s.storm(t, large, gate.Bulk, 9)
	p := b.visit(t, s)
	p.until(`document.querySelectorAll("#lanes-table tbody svg").length === 1`)
	for _, width := range []int64{1280, 320} {
		p.do(chromedp.EmulateViewport(width, 900))
		nodes := send(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
		named := map[string][]string{}
		for _, n := range nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			name := ""
			if n.Name != nil {
				name = strings.Trim(string(n.Name.Value), `"`)
			}
			role := strings.Trim(string(n.Role.Value), `"`)
			named[role] = append(named[role], name)
		}
		for _, panel := range []string{"Lanes", "Bytes", "Adaptive limit", "Pressure", "Refusals"} {
			require.Contains(t, named["region"], panel, "width %d", width)
			require.Contains(t, named["heading"], panel, "width %d", width)
		}
		require.Contains(t, named["table"], "Calls to back ends: what is in flight, who waits, and what to change", "width %d", width)
		require.Contains(t, named["rowheader"], large, "width %d", width)
		require.Contains(t, named["columnheader"], "Verdict", "width %d", width)
		require.Contains(t, named["button"], "Pause")
		require.Len(t, named["status"], 1)
		for _, role := range []string{"image", "meter", "button", "table", "columnheader", "rowheader"} {
			require.NotEmpty(t, named[role], role)
			for _, name := range named[role] {
				require.NotEmpty(t, name, "width %d: a %s has no name: %q", width, role, named[role])
			}
		}
	}
	// Only news is announced, not every number.
	require.Equal(t, []string{"news"}, eval[[]string](p, `[...document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log]")].map(e => e.id)`))
	p.clean(s.URL)
}

// 1280 pixels at 200 % are 640, at 400 % 320.
func narrowAndZoomed(t *testing.T, b browser) {
	s := serveGates(t, nil)
	s.storm(t, large, gate.Bulk, 30)
	s.storm(t, "https://"+strings.Repeat("long", 60)+".example.com", gate.Bulk, 3)
	p := b.visit(t, s)
	p.until(`document.querySelectorAll("#lanes-table tbody tr").length === 2`)
	p.script(`document.querySelectorAll("summary").forEach(e => e.click())`)
	for _, width := range []int64{1280, 1000, 961, 960, 640, 320} {
		p.do(chromedp.EmulateViewport(width, 900))
		require.LessOrEqual(t, eval[int64](p, `document.documentElement.scrollWidth`), width, "the page is wider than the window")
		out := eval[[]string](p, `[...document.querySelectorAll("main *")].filter(e => !e.closest(".scroll, svg, .sr, thead"))
			.filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + " " + e.textContent.slice(0, 40))`)
		require.Empty(t, out, "width %d", width)
	}
	p.clean(s.URL)
}

// like makes the browser prefer something.
func (p *tab) like(feature, value string) {
	p.t.Helper()
	send(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: feature, Value: value}}})
}

func lightAndDark(t *testing.T, b browser) {
	s := serveGates(t, nil)
	p := b.visit(t, s)
	seen := map[string]string{}
	for _, theme := range []string{"light", "dark"} {
		p.like("prefers-color-scheme", theme)
		seen[theme] = eval[string](p, `getComputedStyle(document.body).backgroundColor`)
	}
	require.Equal(t, map[string]string{"light": "rgb(244, 245, 247)", "dark": "rgb(14, 17, 22)"}, seen)
	p.clean(s.URL)
}

func pauses(t *testing.T, b browser) {
	s := serveGates(t, nil)
	p := b.visit(t, s)
	p.do(chromedp.Click("#pause"))
	p.until(`document.getElementById("pause").textContent === "Resume"`)
	asked := s.reports.Load()
	p.until(`/^Paused, the numbers are [5-9] s old$/.test(document.getElementById("link").textContent)`)
	require.Equal(t, asked, s.reports.Load(), "it asked while it was paused")
	p.do(chromedp.Click("#pause"))
	p.until(live)
	require.Eventually(t, func() bool { return s.reports.Load() > asked }, hang/2, 10*time.Millisecond)
	p.clean(s.URL)
}

func hides(t *testing.T, b browser) {
	s := serveGates(t, nil)
	p := b.visit(t, s)
	hidden := func(on bool) {
		p.script(fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, get: () => %v });
			document.dispatchEvent(new Event("visibilitychange"))`, on))
	}
	hidden(true)
	asked := s.reports.Load()
	p.script(`globalThis.seen = 0; setInterval(() => globalThis.seen++, 1000)`)
	p.until(`globalThis.seen >= 5`)
	require.LessOrEqual(t, s.reports.Load(), asked+1, "it asked while nobody looked") // one may have been under way
	asked = s.reports.Load()
	hidden(false)
	require.Eventually(t, func() bool { return s.reports.Load() > asked }, hang/2, 10*time.Millisecond)
	p.clean(s.URL)
}

// The page says that the server is gone and how old its numbers are, and goes on by itself.
func lostAndFound(t *testing.T, b browser) {
	s := serveGates(t, nil)
	p := b.visit(t, s)
	address := s.Listener.Addr().String()
	s.CloseClientConnections()
	s.Close()
	p.until(`/^Connection lost\. The last data are \d+ s old\. /.test(document.getElementById("banner").textContent)`)
	p.until(`document.getElementById("news").textContent.endsWith("Connection lost.")`)
	require.True(t, eval[bool](p, `!document.getElementById("banner").hidden && document.getElementById("link").textContent === "Not connected"`))

	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	again := httptest.NewUnstartedServer(s.Config.Handler)
	_ = again.Listener.Close()
	again.Listener = ln
	again.Start()
	t.Cleanup(again.Close)
	p.until(live + ` && document.getElementById("banner").hidden`)
	p.until(`document.getElementById("news").textContent.endsWith("The connection is back.")`)
}
