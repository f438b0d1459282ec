// Package gate is the vocabulary that every gate, adapter and client speaks.
//
// A [Gate] admits requests. A [Request] says, by value, what a caller asks for;
// a [Lease] is what an admitted caller holds until it calls Release, once or
// more often; a [Rejection] is the one error type of a refused caller. Where refusals
// are counted they are called sheds.
//
// The context carries the rest: the [Class] and the flow of the work done
// under it, and the leases that the work holds. They travel under one key, so a
// goroutine started with the context inherits all of them. [WithClass] and
// [WithFlow] scope everything below them; [LeaseOf] finds the lease that a gate
// gave to this request; [Observe] tells every gate that holds the request how
// its back end answered.
//
// # Promises
//
//   - The zero Lease is valid: releasing it does nothing. So a Release may be
//     deferred before the error is looked at.
//   - A lease released twice, from anywhere, is released once. A stale copy of
//     it can never release what a later request holds.
//   - Every refusal is a *Rejection, and errors.Is finds its [Reason] in it. It
//     never holds a tenant's name, a key or anything of a body.
//   - Status numbers are known here and nowhere else, as plain ints, so that
//     net/http and fasthttp answer alike.
//
// This package starts no goroutine, keeps no state and reads no clock.
package gate
