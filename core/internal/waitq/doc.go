// Package waitq is the one waiting queue of the toolkit: a capacity, leases
// that take a cost from it, and a bounded queue of callers who wait for room.
// Byte admission, tenant lanes and the in-flight limiter are thin policies over
// it; they differ in the unit of the cost.
//
// # State word
//
// All that the uncontended path needs is one signed word,
//
//	state = (free - biased*bias) << countBits + leases
//
// where free is the room left, leases the number of leases out, and biased is 1
// while the queue is slow: somebody waits, or the queue is closed. An acquire
// subtracts its cost with one atomic add and keeps it if the word is still >= 0,
// which proves in one comparison that nobody waits and that there was room.
// Otherwise it puts the cost back and goes to the lock. A release adds; a
// negative result sends it to the lock to dispatch. The bias is set under the
// lock before an arrival looks for room, so either the release is seen by the
// arrival or the arrival by the release: no wake-up is lost and nobody barges.
//
// A failing add hides room for a moment from a dispatch that runs just then;
// its owner always dispatches afterwards, so the room is found.
// Limits are at most [MaxLimit], 2^34, the bias is 2^40 and free has 42 bits:
// over sixty of the largest acquires may fail in the same instant. At most
// 2^22 - 1 leases are out at once.
//
// # Order
//
// Waiters stand in classes, 0 the most urgent. In a class they stand in flows,
// in a flow in order of arrival. The head of the order is found thus:
//
//   - Turn. Classes at their class limit are left out as if they were empty. The
//     turn is that of the highest class that waits, top; or, with aging, that of
//     the lowest class c below it that has aged to top and owes nothing: its
//     oldest waiter has waited AgingStep for each class from top to c, and
//     debt[b] is 0 for every waiting class b from top to the one above c.
//   - Share. debt[b] is what lower classes owe to class b. A grant in order to
//     class c adds 3 x cost to debt[b] of every waiting class b above c; any grant
//     to class b takes its cost from debt[b], down to 0. So work that aged into a
//     class gets at most a quarter of the cost granted in order to the two while
//     that class waits (and one grant more), and it is never starved by it.
//   - Lapse. The head of an aged turn that does not fit may keep the classes above
//     waiting for its room for 2 x AgingStep. Then its turn is spent, and owed for,
//     as if it had been granted: what cannot fit cannot shut out what can.
//   - Flow. In a class the head is the pinned waiter (below), else the first
//     waiter of the flow with the smallest finish tag, the older one in a tie.
//
// The tags are those of self-clocked fair queueing (Golestani, INFOCOM 1994). A
// class has a virtual time V. A flow that gets its first waiter starts at S = V;
// its finish tag is F = S + cost of its first waiter / weight. A grant moves S on
// by the cost granted over the weight, and a grant in order moves V up to the new
// S. Tags are made when a waiter becomes first of its flow, so one that leaves
// ungranted costs its flow nothing. Then S <= V holds for every flow but those
// just served out of order; a flow that leaves raises V to its S. So an idle flow
// can be forgotten at once and exactly: it earns no credit and owes nothing.
//
// Bound: while flows i and j both have waiters, the costs granted to them, each
// over its weight, differ by at most max cost/weight of i plus that of j, apart
// from what the one ahead was granted by passing (see Room). (Each grant to i in
// order happens at the smallest F, so S_i cannot run ahead of F_j, and F_j - S_j
// is one waiter's cost.) Who passes is charged for it, and stands back in the order
// until the others have caught up. Fairness is in cost granted while there is a
// queue; grants that did not queue are charged to no flow. A flow's weight is that
// of its latest waiter. When nobody waits any more, all debts are forgotten.
//
// # Room
//
// Tags and queue bounds count a waiter's full cost, debts what it is charged: a
// waiter is charged min(cost, limit) when it is granted, and fits when that
// much is free; so a cost above a limit that shrank runs alone. When the head of
// the order does not fit, though some room is free, it is pinned: it stays its class's head until it is
// granted or leaves. At most 2 grants may pass it; after that, room is kept for
// it and nothing behind it in the order is granted. Who passes: the highest
// class first, and in it the flow head if it fits, else the oldest waiter whose
// cost, rounded up to a power of two, fits. (The exact first fitting waiter would
// take a search through the queue; with one list for each power of two the
// rounded one is found at once.)
//
// A class at its class limit is passed over entirely, pins and passes included:
// it is not kept waiting by others. A waiter ahead of the pinned one in the order
// may take the kept room; the pinned one is then protected by aging.
//
// # Full queue
//
// A newcomer to a full queue that the rules above let start at once needs no place
// in it. Any other takes the place of one waiter: the newest of the
// lowest class below its own that has waiters and has not aged to its rank; else,
// since whoever is aged competes with it, the newest waiter of the flow with the
// most queued cost per weight, in its own class or else in those below, provided
// that flow is not its own and has more than its own would have. Otherwise the
// newcomer is refused. One newcomer displaces at most one waiter; where that does
// not make enough room it is refused and nobody is displaced.
//
// # Leaving
//
// A waiter leaves when it is granted, displaced, when its context ends, at
// arrival + timeout exactly, or when the queue closes. When its turn comes and
// its own deadline is nearer than the typical hold of its class, it is refused
// instead of started. One timer, armed for the oldest waiter and for
// turns that lapse, serves the queue.
// Whatever removes a waiter dispatches after it.
//
// # Cost
//
// With n waiters in f flows: without a queue, an acquire and a release are one
// atomic add each on the state word and one compare-and-swap on the lease, no lock
// and no allocation. TryAcquire counts its grant with one add more, and reads the
// clock for the first 63 of a class and then one in 64; Take leaves the count to
// the caller, and the clock is read for one in 64 of a lease's generations. Enqueue,
// grant and cancel are O(log f). A shrunken timeout, a class limit, or expiry is
// O(1) plus O(log f) for each waiter that it removes. The flow heap for a full
// queue is built on the first overflow, O(f), and kept until the queue is half
// empty, so it is O(log f) amortised. A waiter is about 240 bytes with its
// channel; an idle flow is nothing.
//
// # Locks
//
// Queue.mu guards everything below it in the struct. Methods ending in Locked
// need it. Nothing is sent, called or logged under it: granted waiters are
// collected under the lock and woken, once each, after it.
package waitq
