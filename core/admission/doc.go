// Package admission bounds the bytes of request bodies that a process holds at
// once. It guards the path on which a body is buffered, parsed and sent on, where
// one byte on the wire becomes many on the heap.
//
// There is one [Budget] for a process, whoever calls. A flow (the peer's address
// by default) only orders those who wait; it owns no capacity, so a caller that
// makes up identities cannot multiply the budget.
//
// # Budget
//
//	budget = clamp(floor(ceiling x 0.25 / 8), 8 MiB, 2 GiB)
//
// where the ceiling is what package pressure finds: the tightest of GOMEMLIMIT,
// the cgroup limits up the tree, and physical memory. 0.25 is the share of memory
// that bodies may take and 8 how often a body is copied on its way through a
// typical handler (raw, decoded, parsed, re-encoded, and garbage of each). The
// ceiling is read again every second; leases that are out are never broken.
//
// # Charge
//
// A known length is reserved whole before the first byte is read. An unknown one
// starts with 64 KiB and grows as it is read; growth takes free room ahead of
// everyone who waits, or fails. Either way the bytes in flight are the real bytes,
// within one read buffer. A request without a body takes no room and never waits.
// Light bodies (declared under HeavyBytes) wait in a class before heavy ones.
// Heavy ones age: one that has waited a second may go first, for at most a quarter
// of the bytes, so neither starves. An unknown length is heavy.
//
// # Order of checks
//
//  1. An exempt path without a heavy body: admitted, up to MaxExempt at once.
//  2. Over HardMaxBodyBytes: payload_too_large.
//  3. Larger than the whole budget: body_exceeds_budget, at once, at any load.
//  4. Heavy, while the memory pressure is critical: resource_pressure, at once.
//  5. Room: admitted. No room: waits, in a bounded queue, for QueueTimeout at most.
//
// The bytes come back when the lease is released, or earlier when [gate.Observe]
// reports that a back end has answered a request whose body was read to its end
// (see [ReleaseAt]).
//
// # Pressure
//
// With a [pressure.Monitor] the budget knows how close the process is to its memory limit.
// While that is high, nobody waits longer than a quarter of QueueTimeout, counted from
// arrival. While it is critical, heavy bodies are refused, and those that wait leave at
// once, all with resource_pressure; light ones and exempt paths go on, and bodies that
// are admitted are read to their end. A body of unknown length is heavy. The monitor's
// ceiling is the budget's.
//
// # Slow senders
//
// A clock runs while a Read of the body is blocked, and only then: a body that
// nobody reads is not slow. A Read ends with slow_body when it is blocked for
// BodyIdle, when the clock shows BodyTimeout in all, when the average falls under
// MinBodyRate after the first 10 s, or under MinBodyRateWaiting after the first
// 2 s while somebody waits for room, which is looked at when the Read begins. What
// was reserved and not read comes back at once, the rest with the lease.
//
// # Log
//
// With a Logger every reason of refusal has at most one line a second, with the numbers
// that decided and how many lines were left out since the last. No line has a path, a flow
// or anything else of the request but its cost. The snapshot counts every refusal.
package admission
