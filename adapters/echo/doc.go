// Package echogate puts a gate in front of Echo v4 handlers.
//
//	e := echo.New()
//	e.Use(middleware.Recover(), echogate.Middleware(hg.Bytes))
//
// The middleware fits Use, groups and single routes; in Pre it does not know the
// route. It asks the gate before anything of the body is read, puts the lease into the
// context of c.Request(), and releases it when the handler returns.
//
// # Order
//
// From the outside in: recovery, logger, CORS, this middleware with the byte gate,
// whatever limits, unpacks or parses bodies, authentication, this middleware again with
// the tenants' gate, the handler. A tenant's lane needs to know the tenant: let
// authentication put it into the context of c.Request() with [gate.WithFlow]. Echo's
// BodyLimit, BodyDump and Decompress replace the body in place: in front of this
// middleware they make a client that asks with "Expect: 100-continue" wait for its
// refusal. A wrapper that answers while its handler still runs, such as Echo's Timeout,
// belongs in front; behind it would let the lease go while the work goes on.
//
// # Refusals
//
// The middleware returns a fresh *[echo.HTTPError] with the refusal's status, so that
// the app's HTTPErrorHandler decides how it looks. Its Internal is the
// *[gate.Rejection], which errors.As finds; its Message is the body: Echo's default
// handler writes it as it is, one that prints it gets the text. Retry-After, the marker
// header and, where it is due, "Connection: close" are set on the response.
//
// The same becomes of a refusal that comes up in the handler, from [Acquire], from
// reading the body or from a client call, when the handler returns it, wrapped or not.
// An *echo.HTTPError that somebody makes of it stays as it is. Echo's Proxy makes a 502
// of every error: have its ErrorHandler return the *gate.Rejection in it.
//
// # Promises
//
//   - The lease is released when the handler returns, panics or ends its goroutine. A
//     panic passes through unchanged, http.ErrAbortHandler too. A handler may release
//     earlier, with [Release] or [gate.LeaseOf].
//   - A request that holds a lease of the gate already (the middleware twice in one
//     chain, a handler that dispatches again) passes, and costs nothing more.
//   - c.Response() and its Writer stay what they are.
//   - c.Request() becomes a copy, which middlewares in front of this one and the
//     HTTPErrorHandler see too when the handler is done. It has a body of our own only
//     where there is one to read: nil and [http.NoBody] stay. The server's request is
//     never changed.
//   - A request refused on HTTP/1 with its body unread is answered at once with
//     "Connection: close", and what still arrives of the body is let in for at most a
//     second. No other refusal closes a connection.
//   - Time in the queue is not taken from the server's timeouts: after a wait
//     WriteTimeout, and ReadTimeout for the body, start anew. A lease may end a slow
//     sender earlier than ReadTimeout, never later.
//   - By default no header decides who waits where: the flow is the one in the
//     context, else the peer's address. That is not c.RealIP().
//   - To a client that has left nothing is written: the response counts as committed,
//     its status for the log is 499.
//
// A request in the queue notices at once that its client has left, except for one
// case: as long as the body of an HTTP/1 request is unread, net/http does not look.
// Such a request leaves at the gate's own bound.
//
// A middleware that replaces c.Response().Writer gives the new one an Unwrap method:
// behind one without, the server's deadlines cannot be moved, nor a slow sender ended.
//
// What adapters/nethttp says of HTTP/2, of websockets and of clients that do not read
// holds here as well: it is the same server.
//
// # Cost
//
// Two allocations per gate for a request without a body, the copy of the request and its
// context, beside the one that Echo makes for each middleware. One more where Format is
// not [gate.Problem], and up to two more where the flow is made from the address of an
// IPv6 peer.
package echogate
