package monitor

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	headgate "github.com/headgate-go/headgate/core"
)

func TestLoopback(t *testing.T) {
	type request struct {
		peer, host, proto string
		header            string // "Name: value"
	}
	good := request{"127.0.0.1:40000", "127.0.0.1:8080", "HTTP/1.1", ""}
	with := func(set func(*request)) request {
		r := good
		set(&r)
		return r
	}
	peer := func(s string) request { return with(func(r *request) { r.peer = s }) }
	host := func(s string) request { return with(func(r *request) { r.host = s }) }
	header := func(s string) request { return with(func(r *request) { r.header = s }) }
	proto := func(s string) request { return with(func(r *request) { r.proto = s }) }
	for _, c := range []struct {
		r    request
		want bool
	}{
		{good, true},
		{peer("[::1]:40000"), true}, {peer("127.8.8.8:1"), true}, {peer("[::ffff:127.0.0.1]:1"), true},
		{host("localhost"), true}, {host("localhost:8080"), true}, {host("LocalHost:8080"), true}, {host("127.0.0.1"), true},
		{host("[::1]:8080"), true}, {host("[::1]"), true}, {host("127.1.2.3:80"), true},
		{header("Accept: */*"), true}, {header("X-Requested-With: x"), true}, {header("Origin: http://127.0.0.1:8080"), true},
		{proto("HTTP/2.0"), true},

		{peer("192.0.2.1:40000"), false}, {peer("10.0.0.1:1"), false}, {peer("[2001:db8::1]:1"), false}, {peer("0.0.0.0:1"), false},
		{peer("[::]:1"), false}, {peer("[fe80::1%eth0]:1"), false}, {peer("169.254.0.1:1"), false},
		{peer("@"), false}, {peer(""), false}, {peer("/run/app.sock"), false}, {peer("127.0.0.1"), false}, {peer("localhost:1"), false}, {peer("pipe"), false},
		{host(""), false}, {host("example.com"), false}, {host("example.com:8080"), false}, {host("192.0.2.1:8080"), false}, {host("0.0.0.0:8080"), false},
		{host("127.0.0.1.example.com"), false}, {host("localhost.example.com"), false}, {host("127.1"), false}, {host("2130706433"), false},
		{host("[::1"), false}, {host("[::1]x"), false}, {host("[::1%25lo]:80"), false}, {host("127.0.0.1:80:80"), false}, {host("user@127.0.0.1"), false},
		{proto("HTTP/1.0"), false},
		{header("Forwarded: for=192.0.2.1"), false}, {header("X-Forwarded-For: 127.0.0.1"), false}, {header("X-Forwarded-For:"), false},
		{header("X-Forwarded-Host: localhost"), false}, {header("X-Forwarded-Proto: https"), false}, {header("X-Forwarded: x"), false},
		{header("X-Forwarded-Anything-New: x"), false}, {header("X-Real-IP: 127.0.0.1"), false}, {header("Via: 1.1 proxy"), false},
		{header("CF-Connecting-IP: 192.0.2.1"), false}, {header("True-Client-IP: x"), false}, {header("X-Client-IP: x"), false},
		{header("X-Cluster-Client-IP: x"), false}, {header("X-Original-For: x"), false}, {header("X-Original-Forwarded-For: x"), false},
		{header("X-Envoy-External-Address: x"), false}, {header("X-Amzn-Trace-Id: x"), false}, {header("CDN-Loop: x"), false},
		{header("X_Forwarded_For: x"), false}, {header("X_Real_Ip: x"), false}, {header("Fly-Client-IP: x"), false}, {header("X-Azure-ClientIP: x"), false},
		{header("Fastly-Client-IP: x"), false}, {header("X-Arr-Log-Id: x"), false}, {header("Forwarded-For: x"), false}, {header("X-Rewrite-Url: x"), false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host, r.Proto = c.r.peer, c.r.host, c.r.proto
		r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(c.r.proto)
		if name, value, ok := strings.Cut(c.r.header, ":"); ok {
			r.Header.Set(name, strings.TrimSpace(value))
		}
		if got := Loopback(r); got != c.want {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
}

// fasthttp's adaptor, before its 1.78, says minor version 1 of every request: what is of 1.0
// tells by Proto alone.
func TestLoopbackOfAnAdaptor(t *testing.T) {
	for proto, want := range map[string]bool{"HTTP/1.1": true, "HTTP/2": true, "HTTP/1.0": false, "HTTP/0.9": false} {
		r := local(http.MethodGet, "/")
		r.Proto, r.ProtoMajor, r.ProtoMinor = proto, 1, 1
		if got := Loopback(r); got != want {
			t.Errorf("%s: %v, want %v", proto, got, want)
		}
	}
}

// serveOn serves h on network and address and returns the listener's address.
func serveOn(t *testing.T, h http.Handler, network, address string) net.Addr {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Skipf("cannot listen on %s %s: %v", network, address, err)
	}
	srv := httptest.NewUnstartedServer(h)
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	return ln.Addr()
}

// ask sends one request and returns the status and the body.
func ask(t *testing.T, client *http.Client, target, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Over real sockets: who is here may look, who comes through a proxy that is here may not.
func TestLoopbackOverSockets(t *testing.T) {
	h := open(t, &headgate.Headgate{}, nil)
	want := func(what string, code, wanted int, body string) {
		t.Helper()
		if code != wanted {
			t.Errorf("%s: %d %s, want %d", what, code, body, wanted)
		}
	}
	direct := "http://" + serveOn(t, h, "tcp4", "127.0.0.1:0").String()
	code, body := ask(t, http.DefaultClient, direct+"/status", "")
	want("direct", code, 200, body)
	code, body = ask(t, http.DefaultClient, direct+"/status", "localhost:1234")
	want("through a tunnel", code, 200, body)
	code, body = ask(t, http.DefaultClient, direct+"/status", "rebound.example.com")
	want("by a name that points here", code, 403, body)

	to, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	for name, proxy := range map[string]*httputil.ReverseProxy{
		"NewSingleHostReverseProxy": httputil.NewSingleHostReverseProxy(to),
		"SetXForwarded": {Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
		}},
	} {
		front := httptest.NewServer(proxy)
		t.Cleanup(front.Close)
		for _, path := range []string{"/", "/status", "/inflight", "/history", "/nothing"} {
			code, body = ask(t, http.DefaultClient, front.URL+path, "")
			want(name+" "+path, code, 403, body)
		}
	}

	v6 := "http://" + serveOn(t, h, "tcp6", "[::1]:0").String()
	code, body = ask(t, http.DefaultClient, v6+"/status", "")
	want("IPv6", code, 200, body)
}

func TestUnixSocketIsRefused(t *testing.T) {
	h := open(t, &headgate.Headgate{}, nil)
	socket := filepath.Join(t.TempDir(), "s")
	serveOn(t, h, "unix", socket)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(client.CloseIdleConnections)
	if code, body := ask(t, client, "http://localhost/status", ""); code != http.StatusForbidden {
		t.Errorf("%d %s", code, body)
	}
}

// A refusal says what to do and nothing of what is behind it, on whatever path.
func TestRefusalSaysWhatToDo(t *testing.T) {
	h := open(t, openGates(t, gatesConfig()), nil)
	var first string
	for _, path := range []string{"/", "/status", "/inflight", "/history", "/nothing"} {
		for _, method := range []string{"GET", "POST"} {
			r := local(method, path)
			r.RemoteAddr = "192.0.2.1:1"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			body := w.Body.String()
			if first == "" {
				first = body
			}
			if w.Code != http.StatusForbidden || body != first || !strings.Contains(body, "set Authorize in monitor.Config") || len(body) > 250 {
				t.Errorf("%s %s: %d %q", method, path, w.Code, body)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: may be stored", method, path)
			}
		}
	}
}

// Authorize is the whole rule where it is set.
func TestAuthorize(t *testing.T) {
	h := open(t, &headgate.Headgate{}, func(c *Config) {
		c.Authorize = func(r *http.Request) bool { return r.Header.Get("Authorization") == "let me in" }
	})
	for _, c := range []struct {
		authorization string
		want          int
	}{{"let me in", 200}, {"", 403}, {"please", 403}} {
		r := httptest.NewRequest(http.MethodGet, "https://status.example.com/headgate/status", nil)
		r.Header.Set("Authorization", c.authorization)
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || strings.Contains(w.Body.String(), "loopback") {
			t.Errorf("%q: %d %s", c.authorization, w.Code, w.Body)
		}
	}
	if w := get(h, "/status"); w.Code != http.StatusForbidden {
		t.Errorf("from this machine: %d", w.Code)
	}
}
