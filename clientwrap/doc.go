// Package clientwrap puts an in-flight limiter around an HTTP client.
//
//	c := headgate.DefaultConfig()
//	c.Inflight.MaxInflight = 8 // calls at once to each host; the default is 0: no limit
//	hg, err := headgate.Open(c)
//	...
//	client := &http.Client{Transport: clientwrap.NewTransport(nil, hg.Outbound, clientwrap.Config{})}
//
// One slot of a lane is kept for interactive calls (InteractiveReserve), so calls that
// say nothing of their class have 7 of those 8. A limiter alone comes from [inflight.New].
//
// A [Transport] is an http.RoundTripper over another one. Every exchange, a retry or
// a redirect too, takes a slot of its lane before it is sent and waits for it if it
// must. The limiter bounds what is open, not what is begun: the slot is held until the
// response's body is over.
//
// # When a slot comes back
//
// Once, at the first of
//
//   - the response head, where there is no body to read: HEAD, http.NoBody, nil;
//     with ReleaseAtHeaders always
//   - the body's end, an error of its Read, or its Close
//   - the end of the request's context, or of its deprecated Cancel channel
//   - MaxHold
//   - an error or a panic of the base, or of a gate in [gate.Observe]
//
// A body that is neither read to its end nor closed, under a context that does not
// end, holds its slot for ever: only MaxHold bounds that. A protocol switch (101) is
// over when its connection is closed or at its end; the context of the request does
// not end the connection, so it does not end the slot. A free slot is not a free back
// end: one that goes on working after its caller has left is busier than the lane
// knows.
//
// # Waiting
//
// In a RoundTripper the wait is part of the request: http.Client's Timeout and the
// timeouts of an SDK run while it queues. [inflight.Limiter.Do] waits above the client
// instead; the first exchange under it gets the slot that Do has waited for, if both
// name the same lane:
//
//	err := limiter.Do(ctx, inflight.HostKey("https://api.example.com/v1"), func(ctx context.Context) error {
//		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example.com/v1/chat", body)
//		...
//	})
//
// Under another name Do's slot stays in a lane of its own, and the exchange waits for a
// second one. Do and [inflight.WithCall] also make one call of all attempts:
// they keep their place, share one QueueTimeout, and are refused at once after the
// lane has refused one.
//
// # Refusals
//
// A request that gets no slot is answered with the status of its [gate.Rejection]
// (503), with Retry-After, with "x-should-retry: false", which keeps the SDKs of OpenAI
// and Anthropic from trying again, with the marker [gate.MarkerHeader] and a body in the
// Format of the Config. A reverse proxy passes that on. With AsError it is the
// *gate.Rejection as an error. [Refused] tells either from an answer of the back
// end, which cannot imitate it; [CheckRetry] does so for go-retryablehttp. What Do
// refuses it returns as that error itself: there is no request yet.
//
// Where the request's context has ended there is no response: the error is the
// context's, as from any transport. If it was its deadline that passed in the queue,
// the error also is a *gate.Rejection that says how long it waited there.
//
// # Lanes
//
// A lane is scheme and host, "https://api.example.com", as [inflight.HostKey] writes
// them; [LaneByModel] makes it a back
// end and a model. When a 429 or 503 names a Retry-After, the lane grants nothing
// until then (60 s at most) and everybody in it waits within their own bounds. The
// limits are this process's own: two processes send twice as much. A base that lets calls
// wait for a connection or a stream (MaxConnsPerHost, a strict HTTP/2 transport) does so
// with a slot: keep MaxInflight below what it opens at once.
//
// # Promises
//
//   - The caller's request is never changed, and never read after RoundTrip has
//     returned. What is changed is a copy.
//   - The request's body is closed whenever the request is not sent. (That of a
//     server's HTTP/1 request, handed on as it is, reads on in its Close, up to 256 KiB,
//     and RoundTrip with it: io.NopCloser around it leaves that to the server.)
//   - The response is the base's own, with its body wrapped. The wrapped body can be
//     written to if the base's can (after a 101).
//   - Nothing of the caller's runs under a lock. A panic passes through and leaks no
//     slot.
//   - [gate.Observe] is called once for each exchange that was sent, with the time to
//     the response head and how it ended; never for one that was refused here, or by a
//     gate of this process further down. If its caller has left, its error is
//     context.Canceled among others.
//
// # Cost
//
// Beside the limiter's fast path one allocation for [gate.Observe], one for the body,
// and what context.AfterFunc costs where the context can end: a goroutine in its place
// where the request has a Cancel channel, as http.Client's Timeout gives it one.
package clientwrap
