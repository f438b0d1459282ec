// Package fibergate puts a gate in front of Fiber v2 handlers.
//
//	app := fiber.New(fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true})
//	app.Use(recover.New(), fibergate.New(fibergate.Config{Gate: hg.Bytes}))
//
// The middleware fits apps, groups and single routes. It asks the gate, puts the lease
// into the context of c.UserContext(), and releases it when the response is finished.
//
// # Bodies
//
// By itself Fiber reads a body whole, into memory, before any handler runs, and fasthttp
// sets aside the announced length before the first byte is there: 50 connections that
// announce 4 MB take 200 MB, and no middleware can do anything about it. There are two
// ways to protect memory:
//
//   - StreamRequestBody with DisablePreParseMultipartForm, as above. The gate is asked
//     when the head and at most 8 KiB of the body have arrived. The handler reads
//     [Body], which charges what it reads and ends at the gate's cap. This is the way
//     to go. Three things change with it. Fiber's BodyLimit is not enforced any more:
//     the gate's cap takes its place. c.Body, BodyParser and the like still work, but
//     read past the gate: a body of unknown length is then neither counted nor capped,
//     and a packed one is unpacked without any bound. And without
//     DisablePreParseMultipartForm forms are still read whole.
//   - Package prebody, for apps that buffer: it asks before the body is read.
//
// Without either the middleware still orders and bounds what the handlers do, and
// tells the gate how much of the body waits in memory (Request.Buffered).
//
// # Order
//
// From the outside in: recovery, logger, CORS, this middleware with the byte gate,
// whatever parses bodies, authentication, this middleware again with the tenants' gate,
// the handler. A tenant's lane needs to know the tenant: let authentication put it into
// c.UserContext() with [gate.WithFlow]. Fiber runs a middleware only for routes that are
// registered after it. Fiber has no recovery of its own: without middleware/recover in
// front a panic ends the process.
//
// timeout.New answers while its handler runs on, with a c that is somebody else's by
// then: do not use it. timeout.NewWithContext is fine on either side. A limiter for
// net/http holds nothing behind adaptor.HTTPMiddleware: it lets go before the Fiber handler
// runs, which is why this package exists.
//
// # Refusals
//
// A refusal is put to the app's ErrorHandler by the middleware itself, as an error in
// which errors.As finds a *[fiber.Error] with the status and the *[gate.Rejection]; the
// middleware then returns nil, so that what is in front sees the status and not an
// error beside a 200. Where the ErrorHandler writes the error's text and no more, as
// Fiber's own does, the body becomes that of Config.Format. Retry-After and the marker
// header are set already.
//
// The same becomes of a refusal that comes up in the handler, from [Acquire], from
// reading [Body] or from a client call, when the handler returns it, wrapped or not. An
// error that holds a *fiber.Error beside it is somebody's decision and stays.
//
// # Promises
//
//   - The lease is released when the handler returns, panics or ends its goroutine. Where
//     the handler leaves a response stream (SetBodyStreamWriter, SendStream) or a hijack
//     (websockets), it is released when those end, by themselves or because the client
//     is gone. A panic passes through unchanged. A handler may release earlier, with
//     [Release] or [gate.LeaseOf].
//   - A request that holds a lease of the gate already (the middleware twice in one
//     chain, RestartRouting) passes, and costs nothing more.
//   - A request that is answered behind the middleware, by it or by anybody, before its
//     streamed body was read is answered at once with "Connection: close", and what still
//     arrives of the body is let in for at most a second, so that its client reads the
//     answer. What is left of a body is never taken for a request, with any fasthttp:
//     before 1.75 Fiber alone makes that mistake. A body of at most 8 KiB has arrived
//     already and closes nothing. Where c.Body or a proxy has read a body of unknown
//     length, an old fasthttp cannot tell that it was read whole: that connection is
//     closed too.
//   - Time in the queue is not taken from the server's timeouts: fasthttp's WriteTimeout
//     begins when the handler is done, and ReadTimeout starts anew for the body. A lease
//     may end a slow sender earlier than ReadTimeout, never later.
//   - Every string that a gate is told is a copy: fasthttp uses its buffers again.
//   - By default no header decides who waits where: the flow is the one in the context,
//     else the peer's address. That is not c.IP, which believes a header where the app
//     says so.
//
// # What Fiber cannot do
//
//   - Nobody learns that a client has left while its request waits or runs. A waiter leaves
//     at the gate's own bound, a stream when a write fails. When the server is shut down
//     waiters are refused at once; what runs goes on.
//   - With "Expect: 100-continue" fasthttp says 100 before any handler runs.
//   - There is no HTTP/2.
//   - What is closed behind an unread body is not the server's any more: Shutdown does not
//     wait until that answer is written.
//   - With Prefork each process has its own gates, so limits multiply by the number
//     of processes. Divide them.
//   - An app behind adaptor.FiberApp holds the whole of request and response in memory,
//     and a stream's lease is released when the handler returns.
//   - Requests are given back to fasthttp when they are done. [Body] may be read by a
//     goroutine that outlives its handler, as net/http's transport does: it then fails.
//     Nothing else of c may be used there.
//   - fasthttp 1.51, the oldest one that Fiber v2 allows, takes a chunked body that breaks
//     off between two chunks for a whole one. Later ones do not.
//   - Where a websocket's client is gone before its handshake is answered fasthttp
//     forgets the request without closing anything: its lease comes back with Go's next
//     garbage collection.
//
// # Cost
//
// Four allocations for the first gate of a request without a body: its record, its
// context, its path and its flow (up to two more for an IPv6 peer). For each further gate
// one, its context, and a copy of the flow where that is set.
package fibergate
