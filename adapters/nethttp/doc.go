// Package httpgate puts a gate in front of net/http handlers.
//
//	mux := http.NewServeMux()
//	http.ListenAndServe(":8080", httpgate.New(hg.Bytes)(mux))
//
// The middleware fits every router that takes func(http.Handler) http.Handler.
// It asks the gate before anything of the body is read, hands the handler a
// request that holds the lease, and releases the lease when the handler returns.
//
// # Order
//
// From the outside in: recovery, access log, CORS, this middleware with the byte
// gate, whatever parses bodies, authentication, this middleware again with the
// tenants' gate, the handler. A tenant's lane needs to know the tenant: let
// authentication put it into the context with [gate.WithFlow]. A wrapper that
// answers while its handler still runs, such as [http.TimeoutHandler], belongs
// outside; inside it would let the lease go while the work goes on.
//
// # Promises
//
//   - The lease is released when the handler returns, panics or ends its
//     goroutine. A panic passes through unchanged, http.ErrAbortHandler too. The
//     handler may release earlier, with [Release] or [gate.LeaseOf].
//   - A request that holds a lease of the gate already (the middleware twice in
//     one chain, a handler that dispatches again) passes, and costs nothing more.
//   - The http.ResponseWriter is handed on as it is.
//   - The caller's *http.Request is never changed. Handlers get a copy, with a
//     body of our own only where there is one to read: nil and [http.NoBody] stay.
//   - A request refused on HTTP/1 with its body unread is answered at once with
//     "Connection: close", and what still arrives of the body is let in for at most
//     a second. No other refusal closes a connection.
//   - Time in the queue is not taken from the server's timeouts: after a wait
//     WriteTimeout, and ReadTimeout for the body, start anew. A lease may end a
//     slow sender earlier than ReadTimeout, never later. It moves the read deadline
//     at every Read of the body, so one that an app sets for itself is lost: bound a
//     body by the gate's own settings.
//   - By default no header decides who waits where: the flow is the one in the
//     context, else the peer's address.
//   - To a client that has left nothing is written.
//
// A request in the queue notices at once that its client has left, except for
// one case: as long as the body of an HTTP/1 request is unread, net/http does
// not look. Such a request leaves at the gate's own bound.
//
// # HTTP/2
//
// The streams of a connection share one receive window, 1 MiB by default, and one
// stream may fill it. A request that waits with its body unread then holds up the
// admitted ones beside it, and they look like slow senders. Whoever puts a byte gate
// in front of HTTP/2 gives the streams windows that fit into the connection's
// together, which bounds what waiters hold in memory too:
//
//	srv.HTTP2 = &http.HTTP2Config{
//		MaxConcurrentStreams:          60,
//		MaxReceiveBufferPerStream:     64 << 10,
//		MaxReceiveBufferPerConnection: 60 * 64 << 10, // less than 4 MiB
//	}
//
// A lease is held until the handler returns, or until it is released: a client
// that does not read its answer holds it, so set WriteTimeout or a write deadline.
// Bytes that arrive after a hijack (websockets) are not counted; Grow and Shrink of
// the lease, or an Acquire for each message, count them.
//
// # Cost
//
// Two allocations per gate for a request without a body: the copy of the request
// and its context. One more where Format is not [gate.Problem], and up to two more
// where the flow is made from the address of an IPv6 peer.
package httpgate
