// Package lanes dispatches work fairly among tenants under one limit that adapts to
// what a back end can do. It is for work whose cost is the back end's, not this
// process's memory; there is one [Controller] for each back end.
//
// A request costs so many units (see [Price]; one that does not tell its length costs as
// one of 256 KiB); what is in flight may cost Limit
// together. Whoever finds no room waits, by class, then in turn by tenant, then by
// arrival. A tenant is the request's Lane, else its flow, else the context's flow. A
// cost above the limit waits until it can run alone; one above MaxLimit is refused.
// Classes age by one for each second of waiting, at most a quarter of the cost going to
// what has aged, so that nothing starves.
//
// # Lanes
//
// Capacity is never a tenant's own: lanes only order. Without VirtualLanes there is
// one queue: at most MaxQueueCount wait in it, and they cost at most MaxQueueCost
// together. With it every tenant has a queue with these bounds, its lane, and 8 times as
// much bounds all of them together, so that a thousand lanes do not multiply what may wait. A
// full lane refuses with tenant_queue_full, or lets its own newest waiter of a lower class
// give way; where the whole is full, the newest waiter of the tenant that fills it does.
//
// At most MaxLanes lanes exist. A lane in which nothing is held and nobody waits makes
// way for a new one, roughly the one that was unused for longest. A newcomer looks at 32
// lanes for it, each one where the last has stopped; when all of these are in use it
// shares the lane "overflow". Nothing that waits or is held is ever dropped for
// that. Callers without a tenant share the lane "anonymous". Outside this package a lane
// is known by a keyed hash of its tenant, which changes with every start; see
// [Controller.LaneID].
//
// # Probes
//
// A parent that fans out to several targets asks for all of them by [Controller.Probe],
// which waits for nothing and holds nothing. The answer is yes for as many as fit, in
// the order given, into what the parent's own lease holds and the room that is free
// while nobody waits. So a parent that was admitted can always do what it was admitted
// for, and a second target is skipped as soon as anybody else waits. It is no
// reservation. A parent whose own price is that of its dearest target thus has room for
// one target at least; one that is left with none is refused by [Controller.NoTarget].
//
// # Limit
//
// The limit begins at InitialLimit and moves at the end of each window, 1 s long:
//
//   - critical pressure halves it, at once, once per window;
//   - high pressure takes a fifth;
//   - so does a gradient of 0.25 or more: the latency now over the latency that is
//     usual, less 1;
//   - where nothing failed it grows by 1 if it was used to 70 % or somebody waited, and
//     something was completed, and the gradient is under 0.125, and half of the usual
//     latency has passed since it last grew;
//   - idle, or used to 30 % at most, it comes back to InitialLimit by 1 per window.
//
// Latency is the time to a back end's first byte, as [gate.Observe] reports it. Where
// that is not done, it is the time from the grant to the release of what is no stream;
// the two are never mixed, and a thousand releases without a first byte between them
// change from the one to the other. Refusals, probes, exempt paths, errors and whatever the caller gave up are no samples.
// The geometric mean of a window moves a short average by half of the way and a long
// one by a tenth, when there are enough samples to tell: at least 8, and as many as
// bring the standard error below 8 %, unless a change is plain before that. For a time
// of twice the usual latency after a cut, samples tell nothing and are dropped.
//
// Latency that rises with the limit is of the limit's own making. So the long average
// learns only from light windows, from latency below it, and from what cuts show. In a
// load that never lets go of the limit there is a dip every two minutes or so (half of
// that more or less, so that replicas do not dip together; less often where the usual latency
// is many windows): the limit falls to 0.7 of
// itself until that shows. If latency falls with it, the limit made it; if not, the
// limit goes back up, and that latency is usual. A dip that cannot drain what is in use,
// streams of minutes for example, ends at once. While the gradient is high the long
// average stays. After an hour of that it is given up for what there is, or after a
// minute if it was made of less than 30 windows: it neither drifts up through an
// incident nor stays at a false low.
//
// [AIMD] looks at errors instead of latency: 429, 5xx, or no answer. [Fixed] never
// moves, not for pressure either.
//
// # Windows
//
// No goroutine waits for the end of a window. A timer is set while something is in
// flight or waits, or the limit is on its way back to InitialLimit; the first request
// after a rest sets it again. It is a timer and not whoever comes by, since the way of a
// request that finds room reads no clock, and since a limit must come back from pressure
// without a request to tell it. Close stops it.
package lanes
