package monitor

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	headgate "github.com/headgate-go/headgate/core"
)

func between(t *testing.T, s, from, to string) string {
	t.Helper()
	_, s, ok := strings.Cut(s, from)
	s, _, closed := strings.Cut(s, to)
	if !ok || !closed {
		t.Fatalf("nothing between %q and %q", from, to)
	}
	return s
}

// The policy fits what is served, byte for byte, and lets nothing else run.
func TestPolicyFitsThePage(t *testing.T) {
	w := get(open(t, &headgate.Headgate{}, nil), "/")
	page, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	if strings.Contains(page, "\r") {
		t.Error("browsers hash \\n where the page has \\r\\n")
	}
	for _, element := range []string{"script", "style"} {
		sum := sha256.Sum256([]byte(between(t, page, "<"+element+">", "</"+element+">")))
		if want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(policy, want) {
			t.Errorf("%q is not in %q", want, policy)
		}
	}
	for _, never := range []string{"unsafe", "*", "http:", "https:", "strict-dynamic", "nonce"} {
		if strings.Contains(policy, never) {
			t.Errorf("%s in %q", never, policy)
		}
	}
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in %q", want, policy)
		}
	}
}

func TestPolicyWantsOneOfEach(t *testing.T) {
	const style, script = "<style>a</style>", "<script>b</script>"
	page, _, err := pageOf(style + "\n" + script)
	if err != nil || string(page) != style+"\n"+script {
		t.Errorf("%s, %v", page, err)
	}
	// As it is checked out on Windows, it is served as everywhere.
	const lines = "<style>a\nb</style>\n<script>c\nd</script>\n"
	page, policy, err := pageOf(lines)
	windows, same, err2 := pageOf(strings.ReplaceAll(lines, "\n", "\r\n"))
	if err != nil || err2 != nil || string(page) != string(windows) || policy != same {
		t.Errorf("%q with %s became %q with %s", page, policy, windows, same)
	}
	for _, page := range []string{
		"", style, script, style + script + script, style + style + script, style + "<script>b", style + `<script src="x"></script>`,
		style + script + `<script src="x"></script>`,
	} {
		if _, policy, err := pageOf(page); err == nil {
			t.Errorf("%s: %s", page, policy)
		}
	}
}

// The page is one file that asks nobody else, and writes what it is told as text.
func TestPageStandsAlone(t *testing.T) {
	page := get(open(t, &headgate.Headgate{}, nil), "/").Body.String()
	plain := strings.NewReplacer("http://www.w3.org/2000/svg", "").Replace(page)
	for _, never := range []string{
		"http://", "https://", "<img", "<iframe", "<object", "<embed", "@import", "url(", "src=", "<link rel=\"stylesheet",
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style=\"", "localStorage", "document.cookie",
	} {
		if strings.Contains(plain, never) {
			t.Errorf("the page has %s", never)
		}
	}
	if on := regexp.MustCompile(`<[^>]*\son[a-z]+=`).FindString(page); on != "" {
		t.Errorf("the policy forbids %s", on)
	}
	if len(page) > 64<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, want := range []string{`<html lang="en">`, `name="viewport"`, "prefers-color-scheme: dark", "prefers-reduced-motion", "forced-colors", `role="status"`, "<noscript>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

// Every verdict and every reason has its words.
func TestPageHasWordsForAll(t *testing.T) {
	page := string(open(t, &headgate.Headgate{}, nil).page)
	verdicts, texts := between(t, page, "const VERDICTS = {", "\n};"), between(t, page, "const REASONS = {", "\n};")
	for _, v := range []string{"idle", "busy", "local_queue", "upstream_degraded", "both"} {
		if !strings.Contains(verdicts, "\n  "+v+": [") {
			t.Errorf("no words for the verdict %s", v)
		}
	}
	for _, r := range reasons[:len(reasons)-1] {
		if !strings.Contains(texts, "\n  "+string(r)+": ") {
			t.Errorf("no words for the reason %s", r)
		}
	}
}

// luminance is that of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 32)
	if err != nil || len(hex) != 7 {
		t.Fatalf("colour %q", hex)
	}
	linear := func(c uint64) float64 {
		v := float64(c&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}

// WCAG 2 AA: 4.5 for text, 3 for what a graphic is read by.
func TestContrast(t *testing.T) {
	style := between(t, string(open(t, &headgate.Headgate{}, nil).page), "<style>", "</style>")
	variable := regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`)
	themes := map[string]string{
		"light": between(t, style, ":root {", "}"),
		"dark":  between(t, between(t, style, "@media (prefers-color-scheme: dark) {", "\n}"), ":root {", "}"),
	}
	used := regexp.MustCompile(`var\(--([a-z-]+)\)`).FindAllStringSubmatch(style, -1)
	pairs := []struct {
		front, back string
		least       float64
	}{
		{"text", "bg", 4.5}, {"text", "panel", 4.5}, {"muted", "bg", 4.5}, {"muted", "panel", 4.5}, {"wait", "panel", 4.5},
		{"wait-text", "wait-bg", 4.5}, {"bad-text", "bad-bg", 4.5}, {"good-text", "good-bg", 4.5}, {"calm-text", "calm-bg", 4.5},
		{"held", "panel", 3}, {"wait", "track", 3}, {"held", "track", 3}, {"bad", "track", 3}, {"good", "track", 3},
		{"bad", "panel", 3}, {"good", "bg", 3}, {"bad", "bg", 3}, {"line", "panel", 3}, {"line", "bg", 3}, {"line", "track", 3},
		{"focus", "bg", 3}, {"focus", "panel", 3},
	}
	for theme, block := range themes {
		colours := map[string]string{}
		for _, m := range variable.FindAllStringSubmatch(block, -1) {
			colours[m[1]] = m[2]
		}
		for _, p := range pairs {
			a, b := luminance(t, colours[p.front]), luminance(t, colours[p.back])
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < p.least {
				t.Errorf("%s: %s on %s has %.2f, want %.1f", theme, p.front, p.back, ratio, p.least)
			}
		}
		for _, m := range used {
			if colours[m[1]] == "" {
				t.Errorf("%s: %s has no colour", theme, m[1])
			}
		}
	}
	// No colour is written but in the two themes, or it would escape this test.
	rest := style
	for _, block := range themes {
		rest = strings.Replace(rest, block, "", 1)
	}
	if c := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b[^{]*;|rgb\(|hsl\(`).FindString(rest); c != "" && !strings.HasPrefix(c, "#pressure") {
		t.Errorf("a colour outside of the themes: %.60s", c)
	}
}

func TestNotFoundSaysWhatThereIs(t *testing.T) {
	w := get(open(t, &headgate.Headgate{}, nil), "/headgate/metrics")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "status, inflight, history") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
