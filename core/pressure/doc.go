// Package pressure knows how much memory this process may use.
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
//   - Every call reads anew, so that a limit changed in place is seen by the next call. Nothing
//     is kept, nothing is logged, nothing is read before the first call. The same files give the
//     same Ceiling, Reason included, so a caller that compares it with the one before logs each
//     change once.
//   - Files are read through an [io/fs.FS] and up to a bound. A path from the kernel is opened only
//     below the mount it belongs to; one that climbs out with ".." is refused.
//
// Some things are out of sight: limits above a cgroup v2 mount in a private namespace (the kernel
// shows them to nobody inside); the own cgroup where the mount is older than the namespace (only
// the limit at the mount's root counts then, and Reason says so); resource limits such as
// RLIMIT_AS; and Windows job objects.
//
// The formats are those of the Linux manual pages cgroups(7), cgroup_namespaces(7) and proc(5),
// and of the kernel's cgroup-v1/memory and cgroup-v2 documents.
package pressure
