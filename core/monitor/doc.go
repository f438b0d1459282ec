// Package monitor shows what the gates of a process do: their snapshots as JSON, a
// history of the last minutes, and a live page over both.
//
//	m, err := monitor.New(hg, monitor.DefaultConfig())
//	mux.Handle("/headgate/", m)
//
// A [Handler] goes by the last element of a request's path, so it works under any path,
// with and without [net/http.StripPrefix]. The page asks for what stands beside it, so
// that path has to end with a slash.
//
//	/headgate/          the page: one file, which fetches nothing from elsewhere
//	/headgate/status    every gate's snapshot, as JSON under its package's name
//	/headgate/inflight  that of the outbound calls alone
//	/headgate/history   samples of the last 15 minutes, oldest first
//
// A gate that the Headgate does not have is absent from status and history, and the page
// says so; inflight is {"enabled": false} then. GET and HEAD are answered and nothing else.
// A request asks no gate for room, changes nothing, and is answered in shadow, under
// pressure and after Shutdown alike.
//
// # Who may look
//
// The reports name lanes, which are back ends and models, and tenants by opaque ids only.
// Config.Authorize decides who sees them. Without it the rule is [Loopback]: the peer and the
// Host are loopback addresses, and nothing says that the request was forwarded. A tunnel
// (ssh -L, kubectl port-forward) passes, everything else is answered 403. The Host is
// looked at because a name that somebody else owns can be made to point at 127.0.0.1.
//
// Loopback cannot see a proxy on this machine that leaves no mark: one that adds no header and
// speaks HTTP/1.1. nginx since 1.29.7 and HAProxy are such, as they come, and so is all that passes
// on TCP. It does not help that some leave the Host as it was: a client can send one of this
// machine. Nobody can tell; where such a proxy stands in front of the port, have it add
// X-Forwarded-For, keep it from passing this path on, or set Authorize.
//
// An answer is in memory until its client has read it, the longest history half a megabyte or
// more. Where Authorize lets in whoever might read slowly, bound how many do and how long.
//
// # History
//
// A Handler takes a sample every Period, in a goroutine of its own that Close ends, and
// keeps those of the time History: at the defaults 300 samples of 640 bytes at most,
// 200 KB in all, however much the gates do. Of the lanes of outbound calls it keeps the 20 busiest.
//
// A sample is what the gates' Snapshot methods say, one after the other. Refusals are
// differences between two samples; those of outbound calls count the lanes that were evicted
// since. A counter that went back counts from zero: there is no negative number in the history. What happened
// before New is not in it. Samples are never changed once they are taken, so that whoever
// reads them holds up nobody.
package monitor
