package gate_test

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

func TestPeerFlow(t *testing.T) {
	for addr, want := range map[string]string{
		// IPv4, with and without a port
		"192.0.2.1:443":    "192.0.2.1",
		"192.0.2.1":        "192.0.2.1",
		"[192.0.2.1]:443":  "192.0.2.1",
		"255.255.255.255:": "255.255.255.255",
		// IPv6 by /64
		"[2001:db8::1]:443":                        "2001:db8::/64",
		"[2001:db8::1]":                            "2001:db8::/64",
		"2001:db8::1":                              "2001:db8::/64",
		"[2001:db8:0:0:ffff:ffff:ffff:ffff]:1":     "2001:db8::/64",
		"[2001:DB8:0:1::]:1":                       "2001:db8:0:1::/64",
		"[::1]:80":                                 "::/64",
		"::":                                       "::/64",
		"[fe80::1%eth0]:80":                        "fe80::/64",
		"fe80::2%eth1":                             "fe80::/64",
		"[fe80::3%a:b]:80":                         "fe80::/64",
		"[64:ff9b::192.0.2.1]:80":                  "64:ff9b::/64",
		"[2001:db8:1:2:3:4:5:6]:65535":             "2001:db8:1:2::/64",
		"2001:db8:1:2:3:4:5:6":                     "2001:db8:1:2::/64",
		"[2001:0db8:0001:0002:0000:0000:0000:0]:9": "2001:db8:1:2::/64",
		// IPv4 in IPv6 is IPv4
		"[::ffff:192.0.2.1]:80":      "192.0.2.1",
		"::ffff:192.0.2.1":           "192.0.2.1",
		"[::ffff:c000:201]:80":       "192.0.2.1",
		"[::ffff:192.0.2.1%eth0]:80": "192.0.2.1",
		// neither: as it is, without its port
		"@":              "@",
		"":               "",
		":80":            "",
		":":              "",
		"[]:80":          "",
		"localhost:80":   "localhost",
		"localhost":      "localhost",
		"/run/app.sock":  "/run/app.sock",
		"pipe":           "pipe",
		"[":              "[",
		"]":              "]",
		"[::1":           "[::1",
		"]:80":           "]",
		"a:b:c":          "a:b:c",
		"[a:b]:c":        "a:b",
		"1.2.3.4.5:6":    "1.2.3.4.5",
		"12345::67890:1": "12345::67890:1",
	} {
		if got := gate.PeerFlow(addr); got != want {
			t.Errorf("PeerFlow(%q) = %q, want %q", addr, got, want)
		}
	}
}

var sinkString string

func TestPeerFlowAllocatesNothingForIPv4(t *testing.T) {
	for _, addr := range []string{"192.0.2.1:443", "192.0.2.1", "[192.0.2.1]:443", "@", "localhost:1"} {
		if n := testing.AllocsPerRun(100, func() { sinkString = gate.PeerFlow(addr) }); n != 0 {
			t.Errorf("PeerFlow(%q) allocates %v times", addr, n)
		}
	}
}

// peerModel is what PeerFlow promises for an address that is known to be one.
func peerModel(ip netip.Addr) string {
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	b := ip.As16()
	clear(b[8:])
	return netip.AddrFrom16(b).String() + "/64"
}

func FuzzPeerFlow(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, uint16(80), "eth0", "192.0.2.1:80")
	f.Add([]byte("\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), uint16(0), "", "[::1]:1")
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01"), uint16(1), "a:b", "[fe80::1%a]:2")
	f.Add([]byte{}, uint16(9), "%", "]:[:")
	f.Fuzz(func(t *testing.T, raw []byte, port uint16, zone, text string) {
		if ip, ok := netip.AddrFromSlice(raw); ok {
			checkPeer(t, ip, port, zone)
		}
		// Any text: the port never matters, and what comes out is either a part
		// of what went in or an address.
		got := gate.PeerFlow(text)
		if _, err := netip.ParseAddr(got); err != nil && !strings.Contains(text, got) {
			if p, err := netip.ParsePrefix(got); err != nil || p.Bits() != 64 || p != p.Masked() || p.Addr().Zone() != "" {
				t.Errorf("PeerFlow(%q) = %q", text, got)
			}
		}
		a, b := gate.PeerFlow(net.JoinHostPort(text, "80")), gate.PeerFlow(net.JoinHostPort(text, "443"))
		if a != b {
			t.Errorf("%q: ports make flows %q and %q", text, a, b)
		}
	})
}

func checkPeer(t *testing.T, ip netip.Addr, port uint16, zone string) {
	t.Helper()
	want := peerModel(ip)
	forms := []string{ip.String(), "[" + ip.String() + "]", netip.AddrPortFrom(ip, port).String()}
	if ip.Is6() && zone != "" && !strings.ContainsAny(zone, "[]") {
		z := ip.WithZone(zone)
		forms = append(forms, z.String(), netip.AddrPortFrom(z, port).String())
	}
	for _, addr := range forms {
		if got := gate.PeerFlow(addr); got != want {
			t.Errorf("PeerFlow(%q) = %q, want %q", addr, got, want)
		}
	}
	if ip.Is6() && !ip.Is4In6() { // the same /64 is the same flow, its neighbour is not
		b := ip.As16()
		b[15] ^= 0xff
		if got := gate.PeerFlow(netip.AddrFrom16(b).String()); got != want {
			t.Errorf("%v: %q and %q for one /64", ip, got, want)
		}
		b[7] ^= 1
		if got := gate.PeerFlow(netip.AddrFrom16(b).String()); got == want {
			t.Errorf("%v: the /64 beside it has the same flow %q", ip, got)
		}
	}
}

func TestHashFlow(t *testing.T) {
	secret, other := []byte("0123456789abcdef0123456789abcdef"), []byte("another secret of thirty-two byt")
	if got := gate.HashFlow(secret, ""); got != "" {
		t.Errorf("no credential: flow %q, want none", got)
	}
	// RFC 4231, test case 2, cut to 16 bytes.
	if got := gate.HashFlow([]byte("Jefe"), "what do ya want for nothing?"); got != "5bdcc146bf60754e6a042426089575c7" {
		t.Errorf("not HMAC-SHA-256: %q", got)
	}
	seen := map[string]string{}
	for _, s := range [][]byte{secret, other, nil} {
		for _, cred := range []string{"Bearer abc", "Bearer abd", "sk-ant-0001", " ", "\x00", strings.Repeat("k", 10000)} {
			got := gate.HashFlow(s, cred)
			checkHash(t, got, cred)
			if got != gate.HashFlow(append([]byte(nil), s...), cred) {
				t.Errorf("%.20q: two flows for one credential", cred)
			}
			if before, ok := seen[got]; ok {
				t.Errorf("%.20q under %q has the flow of %s", cred, s, before)
			}
			seen[got] = cred + " under " + string(s)
		}
	}
}

// checkHash holds the form: 32 hex digits, so that a credential that is longer
// or holds anything else cannot be in it.
func checkHash(t *testing.T, flow, credential string) {
	t.Helper()
	if b, err := hex.DecodeString(flow); err != nil || len(b) != 16 || strings.ToLower(flow) != flow {
		t.Errorf("HashFlow(%.20q) = %q, want 32 hex digits", credential, flow)
	}
	if len(credential) > 12 && strings.Contains(flow, credential) {
		t.Errorf("HashFlow(%.20q) = %q holds the credential", credential, flow)
	}
}

func FuzzHashFlow(f *testing.F) {
	f.Add([]byte("k"), []byte("k2"), "Bearer x", "Bearer y")
	f.Add([]byte{}, []byte{0}, "a", "")
	f.Fuzz(func(t *testing.T, s1, s2 []byte, c1, c2 string) {
		if c1 == "" || c2 == "" {
			if gate.HashFlow(s1, "") != "" {
				t.Error("a flow without a credential")
			}
			return
		}
		a := gate.HashFlow(s1, c1)
		checkHash(t, a, c1)
		if b := gate.HashFlow(s1, c2); (a == b) != (c1 == c2) {
			t.Errorf("credentials %q and %q: flows %q and %q", c1, c2, a, b)
		}
		// HMAC fills keys up with zeros and hashes those over 64 bytes.
		same := strings.TrimRight(string(s1), "\x00") == strings.TrimRight(string(s2), "\x00")
		if b := gate.HashFlow(s2, c1); len(s1) <= 64 && len(s2) <= 64 && (a == b) != same {
			t.Errorf("secrets %q and %q: flows %q and %q", s1, s2, a, b)
		}
	})
}
