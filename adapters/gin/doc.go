// Package gingate puts a gate in front of Gin handlers.
//
//	r := gin.New()
//	r.Use(gin.Recovery(), gingate.New(hg.Bytes))
//
// The middleware fits an engine, a group and a single route. It asks the gate before
// anything of the body is read, puts the lease into the context of c.Request, and
// releases it when the handlers behind it return.
//
// # Order
//
// From the outside in: recovery, logger, CORS, this middleware with the byte gate,
// whatever parses bodies, authentication, this middleware again with the tenants'
// gate, the handler. A tenant's lane needs to know the tenant: let authentication put
// it into the context of c.Request with [gate.WithFlow]. Gin runs a middleware only
// for routes that are registered after Use. A wrapper that answers while its handler
// still runs, such as [http.TimeoutHandler], belongs around the engine; inside it
// would let the lease go while the work goes on.
//
// # Promises
//
//   - The lease is released when the handlers return, panic or end their goroutine.
//     A panic passes through unchanged, http.ErrAbortHandler too. (gin.Recovery takes
//     that one for a broken connection, and the client a cut answer for a whole one.)
//     A handler may release earlier, with [Release] or [gate.LeaseOf].
//   - A request that holds a lease of the gate already (the middleware twice in one
//     chain, HandleContext) passes, and costs nothing more.
//   - c.Writer stays what it is.
//   - c.Request becomes a copy, which middlewares in front of this one see too when
//     the handlers are done. It has a body of our own only where there is one to read:
//     nil and [http.NoBody] stay. The server's request is never changed.
//   - A refused request is aborted, and answered once. With HTTP/1 and its body unread
//     it is answered at once with "Connection: close", and what still arrives of the
//     body is let in for at most a second. No other refusal closes a connection.
//   - Time in the queue is not taken from the server's timeouts: after a wait
//     WriteTimeout, and ReadTimeout for the body, start anew. A lease may end a slow
//     sender earlier than ReadTimeout, never later.
//   - By default no header decides who waits where: the flow is the one in the
//     context, else the peer's address. That is not c.ClientIP, which believes what
//     everybody says until SetTrustedProxies.
//   - To a client that has left nothing is written; its status for the log is 499.
//
// The gate waits on the context of c.Request, never on c itself, which ends only with
// Engine.ContextWithFallback. A request in the queue notices at once that its client
// has left, except for one case: as long as the body of an HTTP/1 request is unread,
// net/http does not look. Such a request leaves at the gate's own bound.
//
// A middleware that replaces c.Writer gives the new one an Unwrap method: behind one
// without, the server's deadlines cannot be moved, nor a slow sender ended.
//
// What adapters/nethttp says of HTTP/2, of websockets and of clients that do not read
// holds here as well: it is the same server.
//
// # Cost
//
// Two allocations per gate for a request without a body: the copy of the request and
// its context. One more where Format is not [gate.Problem], and up to two more where
// the flow is made from the address of an IPv6 peer.
package gingate
