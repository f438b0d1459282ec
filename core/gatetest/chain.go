package gatetest

import (
	"context"
	"net/http"
	"strings"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// chainScenes: several gates, and what stands between them.
func chainScenes() []scene {
	return []scene{
		both("H13_bytes_before_identity_tenants_after", tenantsAfterIdentity),
		both("second_gate_inside_the_handler", secondGate),
		both("second_gate_refuses", secondRefuses),
		both("body_under_two_leases", underTwoLeases),
		both("K16_exempt_paths_pass", exemptPasses),
	}
}

const tenantHeader = "Suite-Tenant"

// tenantAuth knows whoever names a tenant, and puts it into the context.
func tenantAuth(ctx context.Context, header func(string) string) (context.Context, bool) {
	tenant := header(tenantHeader)
	return gate.WithFlow(ctx, strings.Clone(tenant), 3), tenant != ""
}

// tenantsAfterIdentity: the byte gate stands before authentication and knows the peer
// alone, the tenants' gate behind it knows the tenant.
func tenantsAfterIdentity(e *env) {
	bytes, tenants := e.slots(1, 0), e.slots(1, 0)
	s := e.start(Options{Gate: bytes, Inner: tenants, Auth: tenantAuth})
	for _, tenant := range []string{"one", "", "two"} {
		a := s.get(call{route: Echo, body: reader(blob(100)), length: 100, header: map[string]string{tenantHeader: tenant}})
		want := http.StatusOK
		if tenant == "" {
			want = http.StatusUnauthorized
		}
		equal(e, "status of tenant "+tenant, a.StatusCode, want)
		e.await("both slots come back", func() bool { return bytes.inUse()+tenants.inUse() == 0 })
	}
	for _, q := range bytes.requests() {
		equal(e, "flow before authentication", q.Flow, "127.0.0.1")
	}
	asked := tenants.requests()
	if len(asked) != 2 || asked[0].Flow != "one" || asked[1].Flow != "two" || asked[0].Weight != 3 {
		e.Errorf("the tenants' gate was asked for %+v", asked)
	}
	equal(e, "requests at the byte gate", len(bytes.requests()), 3)
	equal(e, "decisions of the byte gate's hook", len(s.decidedSoFar()), 3)

	release := e.fill(tenants, 0)
	a := s.get(call{route: Echo, body: reader(blob(100)), length: 100, header: map[string]string{tenantHeader: "one"}})
	equal(e, "status of a tenant that is refused", a.StatusCode, http.StatusServiceUnavailable)
	equal(e, "its marker", a.Header.Get(gate.MarkerHeader), string(gate.QueueFull))
	e.await("the byte gate's slot comes back", func() bool { return bytes.inUse() == 0 })
	release()
}

// secondGate: a handler that asks a gate itself, for work of another class.
func secondGate(e *env) {
	g, second := e.slots(1, 0), e.slots(1, 0)
	s := e.start(Options{Gate: g}, func(c *script) { c.second = second })
	f := s.inspected(call{route: Nested, body: reader(blob(100)), length: 100})
	equal(e, "class in the handler", f.Class, gate.Bulk)
	equal(e, "leases of both gates", f.Live && f.Second, true)
	asked := second.requests()
	if len(asked) != 1 {
		e.Fatalf("the second gate was asked %d times", len(asked))
	}
	q := asked[0]
	equal(e, "class", q.Class, gate.Bulk)
	equal(e, "flow", q.Flow, "nested")
	equal(e, "method", q.Method, http.MethodPost)
	equal(e, "path", q.Path, string(Nested))
	equal(e, "bytes", q.Bytes, 100)
	equal(e, "class at the first gate", g.requests()[0].Class, gate.Default)
	e.await("both slots come back", func() bool { return g.inUse()+second.inUse() == 0 })
}

// secondRefuses: its error, returned, is answered.
func secondRefuses(e *env) {
	g, second := e.slots(1, 0), e.slots(0, 0)
	s := e.start(Options{Gate: g}, func(c *script) { c.second = second })
	for range 3 {
		a := s.get(call{route: Nested, body: reader(blob(100)), length: 100})
		s.checkRefusal(a, refusal(gate.QueueFull, nil), gate.Problem)
		e.await("the first slot comes back", func() bool { return g.inUse() == 0 })
	}
	s.kept()
}

// underTwoLeases: a body is read under the leases of all gates, each of which may end
// it, whether the middlewares or the handler have asked them.
func underTwoLeases(e *env) {
	small := func(c *admission.Config) { c.HardMaxBodyBytes = mib }
	for name, o := range map[string]Options{
		"outer": {Gate: e.budget(small), Inner: e.budget(nil)}, "inner": {Gate: e.budget(nil), Inner: e.budget(small)}, "handler's": {Gate: e.budget(nil)},
	} {
		s := e.start(o, func(c *script) { c.second = e.budget(small) })
		route, arg := Echo, ""
		if o.Inner == nil {
			route, arg = Nested, "unread"
		}
		a := s.uploaded(call{route: route, arg: arg}, blob(2*mib))
		equal(e, name+" gate: status", a.StatusCode, http.StatusRequestEntityTooLarge)
		equal(e, name+" gate: marker", a.Header.Get(gate.MarkerHeader), string(gate.PayloadTooLarge))
		fits := blob(mib)
		a = s.uploaded(call{route: route, arg: arg}, fits)
		equal(e, name+" gate: body that fits", a.text, digestOf(fits))
	}
}

// exemptPasses: a skipped path is answered while nobody gets in.
func exemptPasses(e *env) {
	g := e.slots(0, 0)
	s := e.start(Options{Gate: g, Skip: func(path string) bool { return path == string(Inspect) }})
	f := s.inspected(call{route: Inspect})
	equal(e, "a lease of the gate", f.Live, false)
	for _, near := range []string{"/inspect/", "//inspect", "/Inspect", "/inspect%2f"} {
		a := s.get(call{path: near})
		past := a.Header.Get(gate.MarkerHeader) == ""
		if past && (e.suite.ItemRoute == "unmatched" || a.StatusCode == http.StatusOK) { // behind a router it may be nothing
			e.Errorf("%s got past the gate", near)
		}
	}
	equal(e, "decisions about the exempt", len(s.decidedSoFar()), len(g.requests()))
}
