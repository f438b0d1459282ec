// Package gatetest is the conformance suite that every adapter passes.
//
// It runs an adapter on real sockets, mostly through clients that say exactly what
// they are told: uploads that stop half-way, readers that do not read, clients that
// leave while they wait, handlers that panic, stream, hijack or ask a second gate.
// Each case is named after the reports that it stands for (T17_..., A25_...), and
// after each nothing may be held, nobody may wait, and no goroutine may be left.
//
// # An adapter's suite_test.go
//
// The suite has no framework, so the adapter brings the app: [Adapter].Start serves
// it on the listener that it is given, as [Options] describes, and each of [Routes]
// is registered with a handler that does nothing but call [Options.Handle] with an
// [Exchange], which says in the framework's words what a handler can do. An adapter
// over net/http embeds [HTTP] in its exchange, which leaves it the helpers of the
// adapter, and returns [Serve]:
//
//	func TestSuite(t *testing.T) {
//		gatetest.Run(t, gatetest.Adapter{Start: start, ItemRoute: "unmatched"})
//	}
//
//	func start(l net.Listener, o gatetest.Options) gatetest.Server {
//		mux := http.NewServeMux()
//		for _, route := range gatetest.Routes() {
//			pattern := string(route)
//			if route == gatetest.Item {
//				pattern += "{id}"
//			}
//			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
//				x := &exchange{HTTP: gatetest.HTTP{W: w, R: r}, app: mux}
//				if err := o.Handle(route, x); err != nil && !httpgate.Refuse(w, x.R, err) {
//					w.WriteHeader(http.StatusInternalServerError)
//				}
//			})
//		}
//		... the middlewares, from the inside out ...
//		return gatetest.Serve(l, o, app)
//	}
//
//	type exchange struct {
//		gatetest.HTTP
//		app http.Handler
//	}
//
//	func (x *exchange) Context() context.Context { return httpgate.Context(x.R) }
//	... Acquire, Release, Refuse, SetClass, Redispatch ...
//
// The test of adapters/nethttp is the whole of it, in 150 lines.
//
// # What a framework cannot do
//
// [Deviations] declare it. A case that meets a declared deviation does not pass it
// over: it asserts what the adapter promises instead, so that a declaration that is
// not true fails as well.
//
// # Slow machines
//
// No case takes a busy machine for a wrong adapter. A case waits for what must happen
// as long as anything moves on its connections; it hangs, and fails, when nothing has
// moved for 20 s. The few cases that need a server's own timeouts to run out give them
// 3 and 9 times as long when they fail; each attempt that failed is logged.
//
// # For an adapter's own tests
//
// [CutBodies] and [Heartbeat] check what the suite's apps have no place for. [Slots] is a
// gate that admits so many at once, [Refusing] nobody, [Free] everybody without allocating.
//
// # What is not here
//
// The suite holds what every adapter must do. It measures no allocations and no
// speed, and it cannot see timers: those are for the adapter's own tests, like what
// only its framework has (error handlers, routers, contexts of its own).
//
// Only tests may import this package.
package gatetest
