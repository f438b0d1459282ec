package gate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// PeerFlow returns the flow of a peer address such as a request's RemoteAddr:
// the IPv4 address, or the /64 prefix of an IPv6 address, without the port and
// the zone. An address that is neither is returned as it is, without its port.
func PeerFlow(addr string) string {
	host := addr
	if i := strings.LastIndexByte(addr, ':'); i >= 0 && (strings.HasSuffix(addr[:i], "]") || strings.IndexByte(addr, ':') == i) {
		host = addr[:i]
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	if strings.IndexByte(host, ':') < 0 {
		return host // no IPv6: nothing to group, nothing to allocate
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	p, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}

// HashFlow returns a flow for a presented credential: the first 16 bytes of
// its HMAC-SHA-256 under secret, in hex. Without the secret the credential can
// be neither read back from it nor guessed. An empty credential returns "".
//
// secret should be 32 random bytes, made at start and shared by nobody but the
// processes whose flows must be equal. A nil or empty secret is no secret:
// whoever sees a flow can then try candidates, and short or leaked credentials
// fall. HMAC also takes secrets that differ only in zero bytes at the end, up
// to 64 bytes, for the same one.
//
// A credential that nobody has checked yet can be made up: someone who sends a
// new one with each request takes a turn with each, and so dilutes everybody
// else's turns. Capacity cannot be multiplied that way, only order.
func HashFlow(secret []byte, credential string) string {
	if credential == "" {
		return ""
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(credential))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
