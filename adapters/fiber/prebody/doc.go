// Package prebody asks a gate before Fiber reads a request's body into memory. It is for
// apps that need Fiber's way of reading bodies whole; whoever can, streams them instead
// (see package fibergate).
//
//	app := fiber.New()
//	err := prebody.Attach(app, fibergate.Config{Gate: hg.Bytes})
//	app.Use(fibergate.New(fibergate.Config{Gate: hg.Bytes}))
//
// It hangs on fasthttp's HeaderReceived hook: a connection whose request has to wait
// stands still in front of its body, and nothing is set aside for the body until there
// is room for it. The lease is in c.UserContext(), where a middleware of package
// fibergate over the same gate finds it and does not ask again; requests without a body
// pass, and are that middleware's.
//
// # Promises
//
//   - Of bodies that wait no more lies in memory than fasthttp's read buffer. The gate is
//     told the announced length. A body of unknown length costs the app's BodyLimit, at
//     which fasthttp cuts it off, until its request is done. A longer one than that
//     is answered by Fiber as ever, and the gate is not asked.
//   - A refused request is answered at once, "Expect: 100-continue" or not, by the app's
//     ErrorHandler as package fibergate does it; the connection is closed, and what still
//     arrives is let in for at most a second. Its handlers and middlewares do not run,
//     CORS neither.
//   - Waiting does not count against ReadTimeout, which starts anew for the body.
//   - The lease is released when the response is finished, with its stream or
//     hijacked connection, and when the client breaks off in the body.
//
// The functions of the configuration run before a route is known and before the body is
// there. They get a c of their own: only what they put into c.UserContext() lasts. A panic
// in them ends the process, since no recovery stands around them.
//
// # What it cannot do
//
//   - The body is read by fasthttp, so no lease can end a slow sender: it keeps what it was
//     given until the app's ReadTimeout, which must be set.
//   - Bytes are counted as they are sent. c.Body unpacks a packed body without any bound:
//     read c.BodyRaw, and unpack it within one.
//   - Only the app that listens has a server: attached to one that is mounted into another,
//     it does nothing.
//
// fasthttp sets aside a power of two for a body, so that one may take up to twice what it
// is charged, and as much again while a chunked one grows. Whoever counts on every byte
// gives the gate a factor for it.
//
// # How it finds the request
//
// fasthttp tells the hook nothing but a pointer to the header. The request around it is
// found by the header's place in it, which the compiler knows; that the two belong
// together is fasthttp's own affair. So [Attach] sends two requests through a server of
// its own, over a pipe, and refuses to start where they do not. A later version of
// fasthttp that changes this is found out when the app starts, never in a request.
package prebody
