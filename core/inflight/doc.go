// Package inflight bounds how many calls this process has open to each back end,
// and lets the callers beyond that wait in a short, visible queue ordered by class.
//
// A [Limiter] keeps one lane for each back end, by key: a base URL and a model, a
// host, or what the caller likes (see [LaneKey]). A lane has MaxInflight slots; a
// call holds one from Acquire until the lease is released. Lanes share nothing.
//
// # Order
//
// In a lane waiters stand by class, then in turn by flow where flows are given,
// then by arrival. InteractiveReserve slots are kept for interactive calls: the
// other classes hold at most MaxInflight minus those, together. A waiter's rank
// rises one class for every AgingStep it has waited, but whoever aged into a rank
// gets at most one grant in four while that class itself waits: nothing starves,
// and a flood of batch work cannot turn the classes into one line. That has a
// price: while interactive calls alone overload a lane, a quarter of its grants
// goes to what has aged below them. The class that is counted and reported never
// changes, nor does the reserve open for what has aged.
//
// # Waiting
//
// A caller waits for QueueTimeout at most, and no longer than its own context. The
// wait is not the request's timeout: do it above the client, by [Limiter.Do], and
// keep QueueTimeout below every timeout in front of it. A full queue refuses the
// newcomer, or the newest waiter of a lower class or of the flow that fills it.
//
// # Calls
//
// One logical call may ask more than once: a retry, a redirect. [WithCall] and
// [Limiter.Do] give it a ticket. Under a ticket every request for a slot stands
// where the first would stand by now, all of them together wait until QueueTimeout
// after the first, and what a lane has refused it refuses again at once.
//
// # Reload
//
// Reconfigure and SetLimit change lanes in place. A smaller limit revokes nothing:
// nothing is granted until fewer are in flight. A larger one is granted at once. 0
// is off: everybody who waits is admitted. Calls are counted in flight even then,
// so switching on is exact.
//
// # Lanes are bounded
//
// There are at most MaxLanes; an idle one makes way for a new one. When all are in
// use, further keys share the lane "other", so that a client that can choose keys
// cannot choose how much it sends. What is said of that key, by an override or
// SetLimit, goes for that lane, and it counts for no lane of MaxLanes.
package inflight
