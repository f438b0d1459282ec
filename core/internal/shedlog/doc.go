// Package shedlog keeps the books of refusals. [Counts] has their number by reason; a
// [Log] writes lines about them, few enough that a flood fills no disk, and each with the
// numbers that decided.
//
// For each reason a gate has at most one line a second. The next line says how many were
// left out since; where none follows within two seconds, a line of its own says that much.
// What is left out is counted all the same, in the gate's own snapshot: a log tells that
// something is refused and why, not how often.
package shedlog
