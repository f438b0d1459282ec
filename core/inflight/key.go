package inflight

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
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
// that no secret is in a key, and scheme and host are in lower case. A model that
// is not one of models reads "other": a client that invents models makes no lanes.
func LaneKey(base, model string, models []string) string {
	if !slices.Contains(models, model) {
		model = other
	}
	return baseOf(base) + "|" + model
}

func baseOf(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" { // what cannot be read is cut where a secret could begin
		base, _, _ = strings.Cut(base, "?")
		base, _, _ = strings.Cut(base, "#")
		if i := strings.LastIndexByte(base, '@'); i >= 0 {
			scheme, _, found := strings.Cut(base[:i], "://")
			if base = base[i+1:]; found {
				base = scheme + "://" + base
			}
		}
		return strings.TrimRight(base, "/")
	}
	return strings.ToLower(u.Scheme+"://"+u.Host) + strings.TrimRight(u.EscapedPath(), "/")
}

// canonical bounds a key that anybody may have made and makes it fit for labels:
// "" reads "default", bytes that are no UTF-8 are replaced, and of a key over 512
// bytes there is its beginning and a digest.
func canonical(key string) string {
	switch {
	case key == "":
		return unnamed
	case len(key) > maxKey:
		sum := sha256.Sum256([]byte(key))
		return strings.ToValidUTF8(key[:64], "") + "~" + hex.EncodeToString(sum[:8])
	case !utf8.ValidString(key):
		return strings.ToValidUTF8(key, "\uFFFD")
	}
	return key
}
