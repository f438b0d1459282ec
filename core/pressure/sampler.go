package pressure

import (
	"io/fs"
	"slices"
	"time"
)

// sample is all that is known at one moment.
type sample struct {
	at       time.Time
	ceiling  Ceiling
	readings [signals]reading
	killed   bool // by the OOM killer, since the sample before
}

func (s *sample) grades() (g [signals]grade) {
	for i := range s.readings {
		g[i] = s.readings[i].grade
	}
	return g
}

// sampler takes samples. It remembers what one sample needs of those before. It is used
// by one goroutine at a time.
type sampler struct {
	physical func(fs.FS) (int64, error)
	runtime  func() goStats

	place   place
	ceiling Ceiling // the last one that settled
	settled notes   // of the last read that had nothing new to tell
	gc      gcWindow
	ooms    oomWatch
}

// place is where the process is in the hierarchies of cgroups.
type place struct {
	groups
	known      bool
	membership membership
	notes      notes
	age        int // samples
	// noPSI says why stall information is not read any more, "" = it is.
	noPSI string
}

// maxAge is for how many samples a place is believed. Mounts hardly ever change and their
// table can be long.
const maxAge = 60

// find looks for the place anew when the process has been moved, when something was
// missing the last time, and now and then.
func (p *place) find(root fs.FS) {
	var n notes
	m, sure := readMembership(root, &n)
	if p.known && m == p.membership && len(n.said)+len(p.notes.said) == 0 && p.age < maxAge {
		p.age++
		return
	}
	if m != p.membership {
		p.noPSI = ""
	}
	p.known, p.membership, p.age = true, m, 0
	p.groups = m.groups(root, sure, &n)
	p.notes = n
}

// psi reads the stall information, until it turns out that there is none.
func (p *place) psi(root fs.FS) (some, full reading) {
	if p.noPSI != "" {
		return unknown(p.noPSI), unknown(p.noPSI)
	}
	some, full, off := psi(root, &p.groups)
	if off {
		p.noPSI = some.reason
	}
	return some, full
}

// forget makes the next sample look at everything anew.
func (s *sampler) forget() { s.place = place{} }

func (s *sampler) take(now time.Time, root fs.FS, c *Config) sample {
	out := sample{at: now}
	g := s.runtime()
	s.place.find(root)
	n := notes{said: slices.Clone(s.place.notes.said), more: s.place.notes.more}
	var levels []bound
	hidden := noLimit
	if s.place.hasMemory {
		levels, hidden = s.place.memory.bounds(root, &n)
	}
	memoryLimit := g.memoryLimit
	if !g.ok {
		memoryLimit = noLimit
	}
	physical := readPhysical(root, s.physical, &n)
	unread := notes{said: slices.Clone(n.said), more: n.more}
	out.ceiling = s.settle(ceiling(levels, hidden, memoryLimit, physical, &n), unread)

	r := &out.readings
	share, known := s.gc.add(now, g.gcSeconds, g.procs)
	r[liveHeap], r[gcShare] = heapReadings(&g, out.ceiling, share, known)
	s.readGroup(root, levels, hidden, physical, r)
	if !c.PSI.Off {
		r[psiSome], r[psiFull] = s.place.psi(root)
	}
	if s.place.hasMemory {
		r[oom], out.killed = s.ooms.read(root, s.place.memory.oomFiles(levels))
	}
	for id := range signals {
		t := c.thresholds(id)
		if t.Off {
			r[id] = quietly("off by configuration")
		}
		if id != oom || !r[id].known {
			r[id].judge(t)
		}
	}
	return out
}

// readGroup reads the signals of the memory cgroup.
func (s *sampler) readGroup(root fs.FS, levels []bound, hidden, physical int64, r *[signals]reading) {
	if !s.place.hasMemory {
		why := "no memory cgroup is to be seen"
		if len(s.place.notes.said) > 0 {
			why = s.place.notes.said[0]
		}
		r[workingSet], r[memoryHigh], r[oom] = unknown(why), unknown(why), unknown(why)
		return
	}
	u := usage{root: root, group: s.place.memory, physical: physical, runtime: s.runtime}
	u.read(levels)
	r[workingSet] = u.set.result("no memory limit is set on the cgroup or above it")
	if limit, _ := tightest(levels, noLimit); r[workingSet].quiet && hidden < limit {
		r[workingSet] = unknown("the memory limit is that of a cgroup out of sight")
	}
	if u.group.v1 {
		r[memoryHigh] = quietly("cgroup v1 has no memory.high")
	} else {
		r[memoryHigh] = u.high.result("no memory.high is set on the cgroup or above it")
	}
}

// settle is the ceiling to go by after one more read, which could not read what unread
// says. A limit that could not be read this time (all file descriptors are in use, say) must
// not let the ceiling jump to the next larger bound, so it rises only on a read that could
// read all that could be read before. It falls on any, which is then no measure for the next.
func (s *sampler) settle(read Ceiling, unread notes) Ceiling {
	first := s.ceiling.Bytes == 0
	worse := !first && !unread.within(&s.settled)
	if worse && (read.Bytes == 0 || read.Bytes > s.ceiling.Bytes) {
		kept := s.ceiling
		kept.Reason = read.Reason
		return kept
	}
	if !worse {
		s.settled = unread
	}
	s.ceiling = read
	return read
}
