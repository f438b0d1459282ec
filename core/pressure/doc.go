// Package pressure tells how close this process is to the memory that it may use.
//
// # The ceiling
//
// [CurrentCeiling] answers with the tightest of three bounds:
//
//   - GOMEMLIMIT, the limit of the Go runtime;
//   - the memory cgroup: the smallest limit from the cgroup of this process up to the
//     root of the mount, in cgroup v2 (memory.max), in v1 (memory.limit_in_bytes), and on
//     hybrid hosts, where v1 counts if it has the memory controller. A parent's limit binds
//     as hard as the leaf's;
//   - physical memory (MemTotal of /proc/meminfo, or what the system says on macOS and Windows).
//
// A limit above physical memory therefore changes nothing, and memory.high is not a ceiling: the
// kernel slows a process there, it does not kill it.
//
// What the package promises about them:
//
//   - Nothing here ends or blocks the program: what is missing, unreadable, malformed or absurd is
//     passed over, the other bounds still count, and [Ceiling.Reason] tells about it.
//   - An unknown bound is never read as zero and never, without a Reason, as unlimited. A limit
//     of 0 is nonsense and is passed over too.
//   - Every call of [CurrentCeiling] and [ReadCeiling] reads anew, so that a limit changed in place is seen by the next call. Nothing
//     is kept, nothing is logged, nothing is read before the first call. The same files give the
//     same Ceiling, Reason included, so a caller that compares it with the one before logs each
//     change once.
//   - Files are read through an [io/fs.FS] and up to a bound. A path from the kernel is opened only
//     below the mount it belongs to; one that climbs out with ".." is refused.
//
// # The severity
//
// A [Monitor] takes a sample every Period (1 s), on a clock of its own, and says one word:
// [Normal], [High] or [Critical].
//
//	signal                                     high   critical   recovered
//	live_heap    live heap / ceiling           0.85   0.92       <= 0.75
//	working_set  cgroup working set / limit    0.85   0.92       <= 0.75
//	memory_high  working set / memory.high     0.85   0.92       <= 0.75
//	psi_some     PSI some avg10, percent       30     60         <= 15
//	psi_full     PSI full avg10, percent       30     60         <= 15
//	gc_share     collections' share of CPU     0.25   0.40       <= 0.10
//	oom          oom, oom_kill counters rise          at once
//
// The severity rises when two samples in a row are at least so bad, and becomes normal on
// one sample in which every signal has recovered. Stuck between the thresholds, critical
// falls to high after 3 samples below critical, and high to normal after 10 samples below
// high. An OOM counter that rises is critical at once, a kill for 10 s.
//
//   - live_heap is what the last collection left alive (/gc/heap/live:bytes), so it is known
//     after a collection only. While the severity is not normal the monitor forces one
//     and returns free memory to the system, at most every 30 s, and half as often each
//     time that this frees less than 5 %, down to once in 8 minutes. It does so in a
//     goroutine of its own: samples go on, and nobody waits for the result.
//   - The working set is current - (inactive_file + active_file) - slab_reclaimable: tmpfs
//     counts, the page cache does not. Where memory.stat does not add up with current, all
//     of current counts. Every level up the tree that has a limit is looked at, each with its
//     own memory, and the worst counts. A limit above physical memory is taken for that. A
//     v1 limit out of sight has no memory to go with it: the signal is unknown.
//   - Go's own garbage is no pressure. Where GOMEMLIMIT is not above the limit, what the
//     collector can give back is taken off as well: heap/objects - gc/heap/live + heap/free
//     of runtime/metrics. A process whose GOMEMLIMIT is at its limit otherwise seems full
//     whenever its collector works as it should.
//   - memory_high is about the same working set. The kernel throttles on the page cache
//     too, but it drops that first: a process that reads large files is at memory.high all
//     day, and slow for it only when PSI says so.
//   - PSI is that of the own cgroup. Where it has no memory.pressure, or one that makes no
//     sense, it is that of the whole machine, with the scope "host". When the kernel has
//     none at all it is not looked for again until the next Reconfigure.
//   - gc_share is the CPU time of the collector, without idle marking, of the last three
//     samples, over GOMAXPROCS x wall time. It counts only while the live heap is 0.6 of
//     the ceiling or more; below that it is an application that makes much garbage.
//   - oom is about memory.events of the own cgroup, and of the limits above it about
//     memory.events.local, so that a neighbour that is killed at its own limit does not count.
//     In v1 it is oom_kill of the own memory.oom_control.
//
// What cannot be read, or makes no sense, is unknown, with a reason, and never 0. An
// unknown signal neither raises the severity nor keeps it up, and the others go on; it gets
// one line in the log, a warning where it is there and cannot be used. On other systems than
// Linux what needs its files is unknown.
//
// From a cause to [Severity] it takes the kernel's or the runtime's own delay, then up to two
// periods up and one down. avg10 is an average over some 10 s: it needs about 7 s for half
// of a step up or down, and some 19 s from 100 % to 15 %. gc_share moves within
// three periods.
//
// # What is not seen
//
// Some things are out of sight: limits above a cgroup v2 mount in a private namespace (the kernel
// shows them to nobody inside); the own cgroup where the mount is older than the namespace (only
// the limit at the mount's root counts then, and Reason says so); resource limits such as
// RLIMIT_AS; and Windows job objects.
//
// The formats are those of the Linux manual pages cgroups(7), cgroup_namespaces(7) and proc(5),
// and of the kernel's cgroup-v1/memory, cgroup-v2 and accounting/psi documents.
package pressure
