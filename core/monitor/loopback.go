package monitor

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Loopback reports whether r comes from this machine, by a name of this machine, and
// not through a proxy that says so:
//
//   - the peer's address is loopback; the peer of a Unix socket has none, and is
//     refused, since what stands there is a proxy as a rule;
//   - the Host is localhost or a loopback address, with or without a port;
//   - the request is of HTTP/1.1 or newer, by its numbers and by its Proto: what speaks 1.0 is
//     a proxy, nginx before 1.29.7 as it comes, and adaptors of other servers fill in numbers of
//     their own;
//   - it has no header that proxies add, whatever is in it: Forwarded, Via, Client-Ip,
//     True-Client-Ip, X-Real-Ip, X-Client-Ip, X-Cluster-Client-Ip, X-Remote-Ip,
//     X-Remote-Addr, X-Originating-Ip, X-Proxyuser-Ip, X-Amzn-Trace-Id, Cdn-Loop,
//     Fastly-Client-Ip, Fly-Client-Ip, and everything that begins with X-Forwarded,
//     Forwarded-, X-Original-, X-Rewrite-, X-Envoy-, X-Azure-, X-Appengine-, X-Arr-,
//     X-Amz-Cf- or Cf-.
//
// A proxy on this machine that does none of this passes: nginx since 1.29.7 and HAProxy, as they
// come. See the package comment.
//
// It is the rule where Config.Authorize is nil, and of use in an Authorize of one's own.
func Loopback(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().IsLoopback() && loopbackHost(r.Host) && recent(r) && !forwarded(r.Header)
}

// recent reports whether r is of HTTP/1.1 or newer.
func recent(r *http.Request) bool {
	return r.ProtoAtLeast(1, 1) && !strings.HasPrefix(r.Proto, "HTTP/1.0") && !strings.HasPrefix(r.Proto, "HTTP/0")
}

// loopbackHost reports whether a Host header names this machine.
func loopbackHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	} else if in, ok := strings.CutPrefix(host, "["); ok {
		// An IPv6 address without a port stands in brackets too.
		if name, ok = strings.CutSuffix(in, "]"); !ok {
			return false
		}
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.IsLoopback()
}

// forwarded reports whether a header says that a proxy has passed the request on.
func forwarded(h http.Header) bool {
	for name := range h {
		// Some servers take X_Real_Ip for X-Real-Ip.
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		switch name {
		case "forwarded", "via", "client-ip", "true-client-ip", "x-real-ip", "x-client-ip", "x-cluster-client-ip",
			"x-remote-ip", "x-remote-addr", "x-originating-ip", "x-proxyuser-ip", "x-amzn-trace-id", "cdn-loop",
			"fastly-client-ip", "fly-client-ip":
			return true
		}
		for _, prefix := range [...]string{
			"x-forwarded", "forwarded-", "x-original-", "x-rewrite-", "x-envoy-", "x-azure-", "x-appengine-", "x-arr-", "x-amz-cf-", "cf-",
		} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}
