package gatetest

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// nameScenes: by what a request is known, and by what it is not.
func nameScenes() []scene {
	return []scene{
		both("T42_K3_K12_headers_are_not_trusted", headersNotTrusted),
		both("T43_H1_H11_strings_are_kept", stringsKept),
		both("T44_long_keys_are_not_kept", longKeys),
		first("T45_labels_are_bounded", labelsBounded),
		both("T47_route_label", routeLabel),
		both("gate_is_told_what_is_asked", gateIsTold),
	}
}

// headersNotTrusted: by default no header changes anything of what the gate is asked,
// and the flow is the peer's address.
func headersNotTrusted(e *env) {
	g := e.slots(100, 0)
	s := e.start(Options{Gate: g})
	s.get(call{route: Ignore})
	want := g.requests()[0]
	equal(e, "flow", want.Flow, "127.0.0.1")
	equal(e, "class", want.Class, gate.Default)
	for _, name := range []string{
		"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
		"X-Tenant", "X-Priority", "Priority", "X-Request-Cost", "Authorization", "X-Api-Key", "Api-Key", "Cookie", "X-Session-Id",
		"X-Request-Id", "X-User", "X-Http-Method-Override", "X-Original-Url", "X-Rewrite-Url", gate.MarkerHeader,
	} {
		s.get(call{route: Ignore, header: map[string]string{name: "198.51.100.7"}})
		asked := g.requests()
		equal(e, "what the gate is asked with "+name, asked[len(asked)-1], want)
	}
}

// stringsKept: what the gate was told is the same when later requests have used the
// connection's buffers again, and a configured flow is the one that is used.
func stringsKept(e *env) {
	const times = 100
	g := e.slots(100, 0)
	s := e.start(Options{Gate: g, Flow: func(header func(string) string) string { return header("X-Tenant") }})
	name := func(i int) string { return fmt.Sprintf("tenant-%03d", i) }
	for i := range times {
		s.get(call{
			path: string(Item) + name(i), header: map[string]string{"X-Tenant": name(i), "Content-Type": "text/" + name(i)},
			body: reader(blob(10)), length: 10,
		})
	}
	for i, q := range g.requests() {
		equal(e, "flow", q.Flow, name(i))
		equal(e, "path", q.Path, string(Item)+name(i))
		equal(e, "content type", q.ContentType, "text/"+name(i))
		equal(e, "method", q.Method, http.MethodPost)
	}
	for _, d := range s.decidedSoFar() {
		equal(e, "route", d.Route, e.suite.ItemRoute)
		equal(e, "method", d.Method, http.MethodPost)
	}
	equal(e, "requests", len(g.requests()), times)
	s.kept()
}

// longKeys: keys of any length that clients make up are forgotten with their requests.
// A server may refuse heads of that size itself.
func longKeys(e *env) {
	const size, times = 128 << 10, 64
	s := e.start(Options{
		Gate: e.budget(nil), Flow: func(header func(string) string) string { return header("X-Tenant") },
		OnDecision: func(Decision) {},
	})
	ask := func(i int) {
		status := s.get(call{route: Ignore, header: map[string]string{"X-Tenant": fmt.Sprint(i, strings.Repeat("x", size))}}).StatusCode
		if status != http.StatusOK && status != http.StatusRequestHeaderFieldsTooLarge {
			e.Errorf("status with a long key: %d", status)
		}
	}
	ask(-1)
	before := heap()
	for i := range times {
		ask(i)
	}
	if e.suite.together {
		return // the heap is everybody's
	}
	e.await("the keys are forgotten", func() bool { return heap() < before+size*times/2 })
}

// heap is what lives, in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one has only taken out of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// labelsBounded: however many paths and methods clients make up, the labels are few.
func labelsBounded(e *env) {
	const times = 200
	g := e.slots(100, 0)
	s := e.start(Options{Gate: g})
	c := s.dial()
	for i := range times {
		for _, request := range []string{
			fmt.Sprintf("GET %s%d", Item, i), fmt.Sprintf("GET /nowhere/%d", i), fmt.Sprintf("M%d %s", i, Ignore),
			fmt.Sprintf("M%d /nowhere/%d", i, i),
		} {
			c.say(request)
			c.answer()
		}
	}
	methods := []string{"GET", "other"}
	routes := []string{"unmatched", e.suite.ItemRoute, string(Ignore)}
	for _, d := range s.decidedSoFar() {
		if !slices.Contains(methods, d.Method) || !slices.Contains(routes, d.Route) {
			e.Fatalf("a decision is labelled %q %q", d.Method, d.Route)
		}
	}
	for _, q := range g.requests() {
		if !slices.Contains(methods, q.Method) || !slices.Contains(append(routes, ""), q.Route) {
			e.Fatalf("the gate is told the method %q and the route %q", q.Method, q.Route)
		}
	}
	if len(s.decidedSoFar()) < times {
		e.Errorf("%d decisions about %d requests", len(s.decidedSoFar()), 4*times)
	}
}

// routeLabel: the route is the one that the adapter promises, with the middleware where
// it is, and "unmatched" where nothing matches.
func routeLabel(e *env) {
	s := e.start(Options{Gate: e.slots(100, 0)})
	equal(e, "status", s.get(call{path: string(Item) + "7"}).StatusCode, http.StatusOK)
	equal(e, "route", s.decision(0).Route, e.suite.ItemRoute)
	equal(e, "method", s.decision(0).Method, http.MethodGet)
	equal(e, "status", s.get(call{path: "/nowhere"}).StatusCode, http.StatusNotFound)
	for _, d := range s.decidedSoFar()[1:] { // a middleware behind the router is not asked
		equal(e, "route of nothing", d.Route, "unmatched")
	}
	equal(e, "wait of who did not wait", s.decision(0).Waited, time.Duration(0))
	for _, method := range []string{
		http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace,
	} {
		n := len(s.decidedSoFar())
		s.get(call{method: method, route: Ignore})
		equal(e, "method", s.decision(n).Method, method)
	}
}

// gateIsTold: the length and type of the body, the path decoded and without the query.
func gateIsTold(e *env) {
	g := e.slots(100, 0)
	s := e.start(Options{Gate: g})
	for i, length := range []int64{1000, 0} {
		s.get(call{
			method: http.MethodPut, path: string(Item) + "a%20b?secret=1", body: reader(blob(1000)), length: length,
			header: map[string]string{"Content-Type": "text/plain; charset=utf-8"},
		})
		q, bytes := g.requests()[i], length
		if length == 0 {
			bytes = -1
		}
		if e.BuffersBodies {
			e.declared("BuffersBodies")
			bytes = 1000
			equal(e, "buffered", q.Buffered, 1000)
		} else if e.Prefetches {
			e.declared("Prefetches")
			equal(e, "buffered", q.Buffered, length)
		} else {
			equal(e, "buffered", q.Buffered, 0)
		}
		equal(e, "bytes", q.Bytes, bytes)
		equal(e, "content type", q.ContentType, "text/plain; charset=utf-8")
		equal(e, "method", q.Method, http.MethodPut)
		equal(e, "path", q.Path, string(Item)+"a b")
		equal(e, "lane", q.Lane, "")
		equal(e, "cost", q.Cost, 0)
	}
}

// noHTTP2: an adapter that declares it is offered HTTP/2 and does not take it.
func noHTTP2(e *env) {
	e.declared("NoHTTP2")
	e.protocol = http2
	s := e.start(Options{Gate: e.slots(1, 0)})
	a := s.get(call{route: Ignore})
	equal(e, "status", a.StatusCode, http.StatusOK)
	equal(e, "protocol", a.ProtoMajor, 1)
	config := e.suite.identity.client()
	config.NextProtos, config.ServerName = []string{"h2", "http/1.1"}, "127.0.0.1"
	conn := tls.Client(s.dial(), config)
	if err := conn.HandshakeContext(e.ctx); err != nil {
		e.Fatalf("TLS: %v", err)
	}
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		e.Errorf("the server speaks HTTP/2")
	}
}
