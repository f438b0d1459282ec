package inflight

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
)

const (
	// Other is the model of those that are not on the list, and the lane of keys for
	// which there is no room.
	other = "other"
	// unnamed is the lane of requests that name none.
	unnamed = "default"
	// maxKey is the longest lane key that is kept as it is.
	maxKey = 512
)

// LaneKey returns the key "BASE|MODEL" of the lane for a back end's base URL and a
// model. The base loses user, password, query, fragment and closing slashes, so
// that no secret is in a key, and scheme and host are in lower case, without a port that
// the scheme implies. A base that is no URL is kept if it is a plain name,
// "anthropic-oauth" for example; of any other, in which a secret could stand anywhere,
// the key has a digest. A model that is not one of models reads "other": a client that
// invents models makes no lanes.
func LaneKey(base, model string, models []string) string {
	if !slices.Contains(models, model) {
		model = other
	}
	return baseOf(base) + "|" + model
}

// HostKey returns the key of the lane for all that one host serves: scheme and host of
// base in lower case, without a port that the scheme implies, and nothing else of it.
// It is the lane that package clientwrap takes where it is told no other. A base that is
// no URL is treated as LaneKey treats it.
func HostKey(base string) string {
	if u, err := url.Parse(base); err == nil && u.Host != "" {
		return hostOf(u)
	}
	return baseOf(base)
}

func baseOf(base string) string {
	u, err := url.Parse(base)
	switch {
	case err == nil && u.Host != "" && !strings.Contains(u.Path+u.RawQuery+u.Fragment, "@"): // after one there may be the real host
		return hostOf(u) + strings.TrimRight(u.EscapedPath(), "/")
	case strings.Trim(base, plainName) == "":
		return strings.TrimRight(base, "/")
	}
	return "unreadable" + digest(base)
}

// hostOf is scheme and host in lower case, without a port that the scheme implies.
func hostOf(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return scheme + "://" + host
}

// plainName are the characters of names that are no URLs.
const plainName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/"

// canonical bounds a key that anybody may have made and makes it fit for labels:
// "" reads "default", bytes that are no UTF-8 are replaced, a URL loses user and
// password, and of a key that is over 512 bytes then there is its beginning and a
// digest. What it returns it leaves as it is.
func canonical(key string) string {
	key = strings.ToValidUTF8(withoutUser(key), "\uFFFD")
	switch {
	case key == "":
		return unnamed
	case len(key) > maxKey:
		return strings.ToValidUTF8(key[:64], "") + digest(key)
	}
	return key
}

// withoutUser is a key without what stands before the host of a URL at its beginning.
func withoutUser(key string) string {
	scheme, rest, found := strings.Cut(key, "://")
	if !found {
		return key
	}
	end := strings.IndexAny(rest, "/?#|")
	if end < 0 {
		end = len(rest)
	}
	if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
		return scheme + "://" + rest[at+1:]
	}
	return key
}

// digest tells long or unreadable texts apart.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "~" + hex.EncodeToString(sum[:8])
}
