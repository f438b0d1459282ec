package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate-go/headgate/core/gate"
)

const (
	// classHeader says how urgent a call is, where its tenant may say so.
	classHeader = "Headgate-Class"
	// anthropicKey is where the clients of Anthropic's API put their key by default.
	anthropicKey = "X-Api-Key"
)

// tenant is somebody whom a key stands for. Neither name nor key is ever logged,
// repeated in an error or passed on.
type tenant struct {
	// Name is the flow that the tenant's calls wait in. Not empty, at most 128 bytes.
	Name string `yaml:"name"`
	// Key is what its clients present. Visible ASCII, at most 4096 bytes.
	Key string `yaml:"key"`
	// Interactive puts its calls into the class interactive. Default false: the class
	// default.
	Interactive bool `yaml:"interactive"`
	// MaySetClass lets its calls name their class themselves, in Headgate-Class.
	// Default false.
	MaySetClass bool `yaml:"may_set_class"`
	// Weight is its share beside other tenants, 1 to 1000. Default 1.
	Weight int `yaml:"weight"`
}

func (t *tenant) setDefaults() { t.Weight = 1 }

// validateTenants returns an error that names the first field that cannot work, and
// never its value.
func validateTenants(list []tenant) error {
	names, keys := map[string]int{}, map[string]int{}
	for i, t := range list {
		wrong := func(field, text string, args ...any) error {
			return fmt.Errorf("tenants[%d].%s %s", i, field, fmt.Sprintf(text, args...))
		}
		switch {
		case t.Name == "":
			return wrong("name", "is empty")
		case len(t.Name) > 128:
			return wrong("name", "has %d bytes: want at most 128", len(t.Name))
		case t.Key == "":
			return wrong("key", "is empty")
		case len(t.Key) > 4096:
			return wrong("key", "has %d bytes: want at most 4096", len(t.Key))
		case !visible(t.Key):
			return wrong("key", "has a character that a header cannot carry: want visible ASCII without spaces")
		case t.Weight < 1 || t.Weight > 1000:
			return wrong("weight", "is %d: want 1 to 1000", t.Weight)
		}
		if first, twice := names[t.Name]; twice {
			return wrong("name", "is that of tenants[%d]", first)
		}
		if first, twice := keys[t.Key]; twice {
			return wrong("key", "is that of tenants[%d]", first)
		}
		names[t.Name], keys[t.Key] = i, i
	}
	return nil
}

// visible reports whether s has nothing but visible ASCII characters.
func visible(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
}

// roster finds tenants by the digest of their key: how long that takes says nothing
// about how much of a key was right. An empty roster lets everybody in.
type roster map[[sha256.Size]byte]tenant

func newRoster(list []tenant) roster {
	r := make(roster, len(list))
	for _, t := range list {
		r[sha256.Sum256([]byte(t.Key))] = t
	}
	return r
}

// admitted hands next the calls of those who may make them, with flow and class in
// the context, and answers the others. It stands behind the byte gate.
func (g *gateway) admitted(a api, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, p := g.tenants.Load().identify(a, r)
		if p != nil {
			if p.status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			a.fail(w, r, *p)
			return
		}
		next.ServeHTTP(w, in)
	})
}

// inLane hands next the calls that their tenant's lane lets in, with the lease in the
// context, until next is done. It stands behind admitted. Without tenants the lanes are
// the peers'. The price is that of the length that a call declares, since its body is
// passed on as it comes; a length that is not known counts as 256 KiB.
func (g *gateway) inLane(a api, refuse func(http.ResponseWriter, *http.Request, error) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in, leave, ok := g.enter(a, w, r, gate.Request{Bytes: r.ContentLength}, refuse)
		if !ok {
			return
		}
		defer leave()
		next.ServeHTTP(w, in)
	})
}

// enter asks the tenant's lane for a call: q has what is known of its price. A handler that
// has read the body calls it, in place of inLane, with the price of what is there. It
// returns a copy of r with the lease in its context, and leave, which ends the lease. ok is
// false where the lane has refused the call and refuse has answered it.
func (g *gateway) enter(
	a api, w http.ResponseWriter, r *http.Request, q gate.Request, refuse func(http.ResponseWriter, *http.Request, error) bool,
) (in *http.Request, leave func(), ok bool) {
	if g.hg == nil {
		return r, func() {}, true
	}
	q.Method, q.Route, q.Path = r.Method, a.path, r.URL.Path
	ctx, lease, _, err := gate.Admit(r.Context(), g.hg.Tenants, &q, r.RemoteAddr)
	if refuse(w, r, err) {
		return nil, nil, false
	}
	return r.WithContext(ctx), lease.Release, true
}

// identify returns a copy of r as its tenant's, or what is wrong with it. The copy has
// no key any more, and no class that nobody has allowed.
func (list *roster) identify(a api, r *http.Request) (*http.Request, *problem) {
	var t tenant
	ctx, h := r.Context(), r.Header.Clone()
	if len(*list) > 0 {
		var known bool
		if t, known = (*list)[sha256.Sum256([]byte(presented(a, h)))]; !known {
			return nil, &problem{http.StatusUnauthorized, "invalid_api_key", "the key is missing or unknown: send it as a bearer token"}
		}
		h.Del("Authorization")
		h.Del(anthropicKey)
		ctx = gate.WithFlow(ctx, t.Name, t.Weight)
	}
	if t.Interactive {
		ctx = gate.WithClass(ctx, gate.Interactive)
	}
	if says := h.Values(classHeader); t.MaySetClass && len(says) > 0 {
		class, err := gate.ParseClass(strings.Join(says, ", "))
		if err != nil {
			return nil, &problem{http.StatusBadRequest, "invalid_class", classHeader + ": " + err.Error()}
		}
		ctx = gate.WithClass(ctx, class)
	} else {
		h.Del(classHeader)
	}
	in := r.WithContext(ctx)
	in.Header = h
	return in, nil
}

// presented returns the key that a call presents, "" where there is none or more
// than one.
func presented(a api, h http.Header) string {
	switch lines := h.Values("Authorization"); {
	case len(lines) == 1:
		scheme, key, _ := strings.Cut(lines[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			return strings.TrimLeft(key, " ")
		}
	case len(lines) == 0 && a.format == gate.Anthropic && len(h.Values(anthropicKey)) == 1:
		return h.Get(anthropicKey)
	}
	return ""
}
