package inflight

import (
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"
)

// Trap 60, K: no user, password, query or fragment is ever in a key.
func TestLaneKey(t *testing.T) {
	models := []string{"large"}
	for _, tc := range []struct{ base, model, want string }{
		{"https://llm.example.com/v1", "large", "https://llm.example.com/v1|large"},
		{"https://llm.example.com/v1/", "large", "https://llm.example.com/v1|large"},
		{"HTTPS://LLM.Example.com/V1", "large", "https://llm.example.com/V1|large"},
		{"https://u:p@llm.example.com/v1?api_key=s#f", "large", "https://llm.example.com/v1|large"},
		{"https://llm.example.com", "x", "https://llm.example.com|other"},
		{"https://llm.example.com", "", "https://llm.example.com|other"},
		{"https://u:secret@bad host/%zz?k=secret", "large", "unreadable~|large"},
		{"u:secret@host/v1", "large", "unreadable~|large"},
		{"https://u:pa?ss@host/v1", "large", "unreadable~|large"},
		{"https://u/pass@host/v1", "large", "unreadable~|large"},
		{"", "large", "|large"},
		{"anthropic-oauth", "large", "anthropic-oauth|large"},
	} {
		got := LaneKey(tc.base, tc.model, models)
		if strings.HasPrefix(tc.want, "unreadable") { // and 16 digits
			if len(got) != len("unreadable~0123456789abcdef|large") || strings.Contains(got, "ss") || strings.Contains(got, "host") {
				t.Errorf("LaneKey(%q) = %q", tc.base, got)
			}
			continue
		}
		if got != tc.want {
			t.Errorf("LaneKey(%q, %q) = %q, want %q", tc.base, tc.model, got, tc.want)
		}
	}
}

// It says no more than the host, and no secret of what cannot be read.
func TestHostKey(t *testing.T) {
	for _, tc := range []struct{ base, want string }{
		{"https://llm.example.com", "https://llm.example.com"},
		{"http://llm.example.com:80/v1/", "http://llm.example.com"},
		{"http://llm.example.com:443", "http://llm.example.com:443"},
		{"https://u:secret@LLM.example.com:8443/v1@x?k=secret#f", "https://llm.example.com:8443"},
		{"http://[::1]:80/", "http://[::1]"},
		{"anthropic-oauth", "anthropic-oauth"},
		{"", ""},
	} {
		if got := HostKey(tc.base); got != tc.want {
			t.Errorf("HostKey(%q) = %q, want %q", tc.base, got, tc.want)
		}
	}
	if got := HostKey("https://u:se?cret@host"); !strings.HasPrefix(got, "unreadable~") || strings.Contains(got, "cret") {
		t.Errorf("HostKey of what is no URL = %q", got)
	}
}

func TestLaneKeyKeepsNoSecret(t *testing.T) {
	const odd = "?#@:/|%[] \x00\xff1a"
	f := func(user, pass, query []byte) bool {
		part := func(b []byte) string { // with characters that end one part of a URL, where it does not expect them
			for i := range b {
				b[i] = odd[int(b[i])%len(odd)]
			}
			return "zq" + string(b) + "zq"
		}
		key := LaneKey("https://"+part(user)+":"+part(pass)+"@host/v1?k="+part(query), "m", nil)
		return !strings.Contains(strings.ToLower(key), "zq") && strings.HasSuffix(key, "|other")
	}
	if err := quick.Check(f, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// Keys of 64 KiB, keys that are no text, no key: all are lanes, with bounded names.
func TestCanonicalKeys(t *testing.T) {
	long := strings.Repeat("k", 64<<10)
	for _, tc := range []struct{ in, want string }{
		{"", "default"}, {"a", "a"}, {"\xffa", "\uFFFDa"}, {strings.Repeat("k", maxKey), strings.Repeat("k", maxKey)},
	} {
		if got := canonical(tc.in); got != tc.want {
			t.Errorf("canonical(%.20q) = %.20q, want %.20q", tc.in, got, tc.want)
		}
	}
	if canonical(long) == canonical(long+"k") {
		t.Error("two long keys are one lane")
	}
	f := func(b []byte, n uint16) bool {
		c := canonical(strings.Repeat(string(b), int(n)%200))
		return c != "" && len(c) <= maxKey && utf8.ValidString(c) && canonical(c) == c
	}
	if err := quick.Check(f, nil); err != nil {
		t.Error(err)
	}
}
