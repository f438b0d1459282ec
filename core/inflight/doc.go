// Package inflight bounds how many calls this process has open to each back end.
// The callers beyond that wait in a short, visible queue ordered by class.
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
// and a flood of batch work cannot turn the classes into one. That has a
// price: while interactive calls alone overload a lane, a quarter of its grants
// goes to what has aged below them. The class that is counted and reported never
// changes, nor does the reserve open for what has aged.
//
// # Waiting
//
// A caller waits for QueueTimeout at most, and no longer than its own context. One whose
// context has ended already gets no slot, also where one is free or there is no limit;
// only shadow mode, which admits everybody, admits it too. The wait is not the request's
// timeout: do it above the client, by [Limiter.Do], and keep QueueTimeout below every
// timeout in front of it. A full queue refuses the newcomer, or the newest waiter of a
// lower class or of the flow that fills it.
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
//
// A key may be any text. The lane's own has no user and password of a URL, no bytes that
// are not UTF-8, and 512 bytes at most: of a longer one it is the beginning and a digest. The
// empty key is the lane "default".
//
// # What is known of waits
//
// The percentiles in a snapshot are those of the last 285 to 300 seconds, within 4.5
// percent or 0.53 ms of the exact ones; where more than 32 wait, their own waits are known
// to half a 1024th of QueueTimeout, 0.5 ms at least and 0.5 s at most. (Where QueueTimeout
// is above 17 minutes, those older than 1024 seconds count as their mean.) A lane keeps
// some 30 KB for that at most, however many have waited, and nothing once it has been
// unused for 5 minutes.
package inflight
