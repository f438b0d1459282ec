// Package gatehttp is the half of an adapter that every framework over net/http
// shares. It is all that lies between a request and the gate: asking, handing on
// under the lease, refusing so that the client reads why. Adapters are written with
// it; an app uses the adapter of its framework and never this package.
//
// A middleware is five steps, and what is left to the framework is where its
// context comes from and how it writes an answer:
//
//	q := gate.Request{Route: c.FullPath()} // and what the app has configured
//	a, err := gatehttp.Ask(w, r, g, &q, r.RemoteAddr)
//	defer a.Leave()
//	if err != nil {
//		if rej := gatehttp.Refusal(r, err); gatehttp.Prepare(w, r, rej) {
//			... write rej.Status() and rej.Render(format) ...
//		}
//		return
//	}
//	next(w, a.Enter(format))
//
// # Promises
//
//   - w is never wrapped and r never changed. [Admission.Enter] returns a copy, with a
//     body of its own only where there is one to read: nil and [http.NoBody] stay.
//   - A request that holds a lease of the gate already is not asked for again.
//   - A refusal on HTTP/1 whose body is unread says "Connection: close" and lets in
//     what still arrives for at most a second; no other refusal closes a connection.
//   - Time in the queue is not taken from the server's timeouts.
//   - After Leave nothing of w is touched, whoever is reading the body still.
//
// w must lead to the server's own writer, by being it or by Unwrap, as
// [http.ResponseController] wants it. Behind a writer that hides it deadlines stay as
// they are and a client that has left gets whatever net/http sends it.
package gatehttp
