// Package waitq is the one waiting queue of the toolkit. A [Queue] has a
// capacity, leases that take a cost from it, and a bounded number of callers who
// wait for room. Byte admission, tenant lanes and the in-flight limiter are thin
// policies over it; they differ in the unit of the cost.
//
// # State word
//
// Most of what the path without a queue needs is one signed word,
//
//	state = (free - biased*bias) << shift + counts
//
// where free is the room left, and biased is 1 while the queue is slow: somebody waits,
// or it is paused or closed. An acquire subtracts its cost and counts itself with one
// atomic add, and keeps it if the word is still >= 0, which proves in one comparison
// that nobody waits and that there was room. Otherwise it takes the add back and goes
// to the lock. A release adds; a negative result sends it to the lock to dispatch. The
// bias is set under the lock before an arrival looks for room, so either the release is
// seen by the arrival or the arrival by the release: no wake-up is lost and nobody
// barges.
//
// A failing add hides room for a moment from a dispatch that runs just then;
// its owner always dispatches afterwards, so the room is found.
//
// There are two layouts, one for any costs and one for units; see Config.Units.
//
//	        free  bias  counts
//	costs   42    2^40  22: leases
//	units   24    2^22  20: leases of class 2   20: leases of class 1
//
// With any costs, limits are at most [MaxLimit], 2^34: over sixty of the largest
// acquires may fail in the same instant. At most 2^22 - 1 leases are out at once. Leases
// of classes 1 and 2 are counted in a second word, Queue.lower, one in each half, so that
// one more add proves both bounds that they have: the class limit and the reserve. It
// comes after the add on the state and is undone before that is, so what was said of
// room holds for these bounds too.
//
// In units, the add on the state counts the class too, and its result proves all three
// bounds. The leases are limit - free. Limits, and the leases that the state knows, are at
// most [MaxUnits], 1,000,000, so a count has room for 48,575 failing acquires of its class
// in the same instant, and free for some 3 million. AdmitAll lets in more than MaxUnits:
// those are counted under the lock, hold nothing, and come to the lock with their
// release. So do, in both layouts, the entries that Book makes for who is refused.
//
// # Records
//
// A record of one holder is filled by whoever has it. A shared one (see Share) is
// claimed by a compare-and-swap on its generation, and the release that ends its lease
// frees it by the same step. Where costs are units, a grant without a queue that such a
// record serves is counted by its generation alone; shared.go says how that is exact.
//
// # Order
//
// Waiters stand in classes, 0 the most urgent. In a class they stand in flows,
// in a flow in order of arrival (see Tickets). The head of the order is found thus:
//
//   - Turn. Classes that may not have one lease more, by their class limit or the
//     reserve, are left out as if they were empty: a turn that they would have had
//     is not lost, and nothing is owed to them. The turn is that of the highest
//     class that waits, top; or, with aging, that of the lowest class c below it
//     that has aged to top and owes nothing: its oldest waiter has waited AgingStep
//     for each class from top to c, and debt[b] is 0 for every waiting class b from
//     top to the one above c.
//   - Share. debt[b] is what lower classes owe to class b. A grant in order to
//     class c adds 3 x cost to debt[b] of every waiting class b above c; any grant
//     to class b takes its cost from debt[b], down to 0. Who waits is judged before
//     the grant, whose lease may be the last one of the lower classes. So work that
//     aged into a class gets at most a quarter of the cost granted in order to the
//     two while that class waits (and one grant more), and it is never starved by
//     it.
//   - Lapse. The head of an aged turn that does not fit may keep the classes above
//     waiting for its room for 2 x AgingStep. Then its turn is spent, and owed for,
//     as if it had been granted: what cannot fit cannot shut out what can. While its
//     class is left out, or the queue is paused, it keeps nobody waiting, and has its
//     time anew afterwards.
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
// waiter is charged min(cost, limit) when it is granted, and fits when that much is
// free; so a cost above a limit that shrank runs alone. When the head of the order
// does not fit, though some room is free, it is pinned: it stays its class's head
// until it is granted or leaves. At most 2 grants may pass it; after that, room is
// kept for it and nothing behind it in the order is granted. Who passes: the
// highest class first, and in it the flow head if it fits, else the oldest waiter
// whose cost, rounded up to a power of two, fits. (The exact first fitting waiter
// would take a search through the queue; with one list for each power of two the
// rounded one is found at once.)
//
// A class that may not have one lease more is passed over entirely, pins and passes
// included: it is not kept waiting by others. A waiter ahead of the pinned one in the
// order may take the kept room; the pinned one is then protected by aging.
//
// # Reserve
//
// The leases of classes 1 and 2 together number at most limit - min(Reserve, limit-1),
// whatever they cost: what is left is for class 0, which may have everything. It goes
// by the class that a request has, so age never opens it. It follows every change of
// the limit; a change that leaves more leases out than it allows revokes nothing, and
// AdmitAll goes beyond it. Without a reserve nothing is bound.
//
// # Tickets
//
// A waiter's arrival is when it comes to the queue, or Request.Arrived for a call that
// has been here before, a ticket; in the future is now. All that goes by age goes by
// arrival, and of equal arrivals by who came first to this queue: the place in the
// flow, the tie of two flows, aging, who of those that fit passes, who is the newest in
// a full queue, and the end of its time. A ticket that becomes the first of its flow
// makes the flow's tag, as any other; a pinned waiter stays pinned. What is measured
// and reported as waited is the time in the queue this time.
//
// A ticket whose time is over starts if the rules let it start at once, and otherwise
// is refused at once.
//
// # Pause
//
// In a pause nothing is granted, whatever room there is. Everything else goes on:
// leases come back and grow, waiters leave when their own time is over, and who comes
// is refused by a full queue. Its end is an event like a release. It holds up neither
// a cost of 0 nor those whom AdmitAll lets in; but the books of Book keep to it.
//
// # Full queue
//
// A newcomer to a full queue that the rules above let start at once needs no place
// in it, and leaves no trace if they do not. Any other takes the place of one
// waiter: the newest of the lowest class below its own that has waiters and has not
// aged to its rank; else, since whoever is aged competes with it, the newest waiter
// of the flow with the most queued cost per weight, in its own class or else in
// those below, provided that flow is not its own and has more than its own would
// have. Otherwise the newcomer is refused. One newcomer displaces at most one
// waiter; where that does not make enough room it is refused and nobody is
// displaced.
//
// A flow may have bounds of its own, over all classes. One that is full is full whatever
// place there is in the queue: then it is the newest waiter of that flow, of the lowest
// class below the newcomer's own that has not aged to its rank, that gives its place.
//
// # Leaving
//
// A waiter leaves when it is granted, displaced, when its context ends, at
// arrival + timeout exactly, or when the queue closes. When its turn comes and
// its own deadline is nearer than the typical hold of its class, it is refused
// instead of started. One timer, armed for the oldest waiter, for turns that
// lapse and for the end of a pause, serves the queue.
// Whatever removes a waiter dispatches after it.
//
// Position. Who times out or is displaced is told its place, 1 for the first: one
// more than all who wait in higher classes, however old its own class is, those that
// go before it in its flow, and one for each other flow of its class whose turn comes
// before that of its own; the pinned waiter of its class goes first. Nobody of a lower
// class counts. As the oldest of all times out first, nobody of its own flow is before
// it, and where costs and weights are equal and no other class ages this is the number
// of grants that it would have been. Of more than 128 flows a sample is counted: then
// the place among them is right to some 5 percent of their number, the standard error.
//
// # Waits
//
// With Config.TrackWaits the queue keeps every wait that has ended for 5 minutes, in 20
// slices of 15 seconds, of which the newest is not full: the window is 285 to 300 s. A
// request is in it when it has stood in the queue and left it, by its caller's leave
// too, or was granted or timed out without, which is a wait of 0. A grant that did not
// come to the lock is a wait of 0 from the next Roll or Waits on, so it may count for as
// much longer as that took. The first 32 waits of a slice are kept as they are,
// others in buckets that double in 8: a percentile is within 4.5 percent of the true
// one, or 0.53 ms. Those who wait still count with their ages: exactly up to 32 of
// them, others to half a slot of 1/1024 of the timeout, at least 1 ms and at most
// 1 s wide; those older than 1024 slots, at timeouts above 17 minutes, at their mean.
//
// # Holds
//
// With Config.TrackWaits the queue keeps how long leases were held, since New: of each
// that came to the lock for its grant, and of a sample of the others, the same that are
// timed anyway. A timed lease of the sample stands for all of its record, or of its class
// where the record was the caller's own, since the one timed before; when a record turns
// to others, the next one of the queue stands for what is left. So the histogram leans
// nowhere, and it stands for no more leases than came back, and for fewer by at most 63
// for each shared record and each class. A lease of the sample that comes back while
// somebody has the lock does not wait for it: again the next one stands for it too. Who
// got a grant and had left, or holds nothing, is in it for nothing.
//
// # Cost
//
// With n waiters in f flows: without a queue, an acquire and a release are one
// atomic add each on the state word and one compare-and-swap on the lease, no lock
// and no allocation. TryAcquire counts its grant with one add more, and reads the
// clock for the first 64 of a class and then one in 64, and with any costs, where there
// is a class above 0, the second word with another. With a shared record there is
// instead one compare-and-swap more, and the clock is read for the first 16 and one in
// 64 of its leases; to turn one to another queue or class takes a lock, once in 16 of the
// grants that would have had it. A snapshot looks at every shared record. Enqueue, grant and
// cancel are O(log f), those of a ticket that comes late O(log n), whatever order
// tickets come in. A shrunken timeout, a class limit, or expiry is O(1) plus O(log
// f), and the sample of a position, for each waiter that it removes. The flow heap
// for a full queue is built on the first overflow, O(f), and kept until the queue
// is half empty, so it is O(log f) amortised. A waiter is about 240 bytes with its
// channel; an idle flow is nothing. A queue that Trim has seen to is some 700
// bytes. Waits are kept in 6 KB and up to 1.2 KB for each slice in which somebody
// waited. A changed timeout, and AdmitAll, look at every waiter once.
//
// # Locks
//
// Queue.mu guards everything below it in the struct. Methods ending in Locked
// need it. Nothing is sent, called or logged under it: granted waiters are
// collected under the lock and woken, once each, after it.
package waitq
