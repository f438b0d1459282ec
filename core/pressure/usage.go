package pressure

import (
	"errors"
	"io/fs"
	"path"
)

// memoryStat is what memory.stat says, in bytes; -1 = it does not say.
type memoryStat struct {
	inactiveFile, activeFile, slab int64
}

// readStat reads memory.stat of one level. v1 prints the sums over the descendants, which
// is what usage_in_bytes counts, apart.
func readStat(root fs.FS, name string, v1 bool) (memoryStat, error) {
	s := memoryStat{-1, -1, -1}
	keys := map[string]*int64{"inactive_file": &s.inactiveFile, "active_file": &s.activeFile, "slab_reclaimable": &s.slab}
	if !v1 {
		return s, readKeys(root, name, keys)
	}
	total := memoryStat{-1, -1, -1}
	keys["total_inactive_file"], keys["total_active_file"] = &total.inactiveFile, &total.activeFile
	err := readKeys(root, name, keys)
	if total.inactiveFile >= 0 && total.activeFile >= 0 {
		return total, err
	}
	return s, err
}

// workingSetOf returns what of current the kernel cannot simply drop. Pages of files go
// when they are needed, and slab that is reclaimable; tmpfs is on the lists of anonymous
// memory and so counts. raw says why the parts could not be taken off, and used is all of
// current then: the two files are read one after the other and need not agree.
func workingSetOf(current int64, s memoryStat) (used int64, p parts, raw string) {
	p.current = current
	if s.inactiveFile < 0 || s.activeFile < 0 {
		return current, p, "memory.stat does not tell the page cache"
	}
	p.inactiveFile, p.activeFile, p.slab = s.inactiveFile, s.activeFile, max(s.slab, 0)
	// Each is below 2^62, so they are taken off one by one.
	used = current
	for _, n := range []int64{p.inactiveFile, p.activeFile, p.slab} {
		if used -= n; used < 0 {
			return current, parts{current: current}, "memory.stat has more than memory.current"
		}
	}
	return used, p, ""
}

// collectable returns what of used the collector can give back, where it works towards
// a limit that is not above the kernel's: it has no reason to give it back earlier.
func (g *goStats) collectable(used, limit int64) int64 {
	if !g.ok || g.memoryLimit > limit {
		return 0
	}
	garbage := max(g.objects-g.live, 0) + g.free
	if garbage > used {
		return 0 // swapped out, or not touched yet: the parts do not add up
	}
	return garbage
}

// usage reads the signals of a cgroup from all of its levels and keeps the worst of each,
// for any of them can be the one where the kernel kills. used and limit are of one level.
//
// The runtime is read next to each memory.current, before it and after: where many goroutines
// want the processors, a heap that was just collected is full of garbage again before the
// last of a sample's files has been read.
type usage struct {
	root     fs.FS
	group    group
	physical int64 // noLimit = unknown
	runtime  func() goStats

	set, high worst
}

// worst is the reading with the highest value of several, and why others are missing.
type worst struct {
	reading
	missing error
}

func (w *worst) add(r reading) {
	if !w.known || r.value > w.value {
		w.reading = r
	}
}

func (w *worst) miss(err error) {
	if w.missing == nil {
		w.missing = err
	}
}

// result is the worst reading, or unknown for what is missing, else for none.
func (w *worst) result(none string) reading {
	switch {
	case w.known && w.missing != nil:
		w.reason, w.trouble = w.missing.Error(), isTrouble(w.missing)
	case !w.known && w.missing != nil:
		return missing(w.missing)
	case !w.known:
		return quietly(none)
	}
	return w.reading
}

func (u *usage) read(levels []bound) {
	for _, b := range levels {
		if b.err != nil {
			u.set.miss(b.err)
		}
		high := u.highOf(b.level)
		if b.bytes == noLimit && high == noLimit {
			continue
		}
		before := u.runtime()
		current, err := u.current(b.level)
		after := u.runtime()
		if err != nil {
			if b.bytes != noLimit {
				u.set.miss(err)
			}
			if high != noLimit {
				u.high.miss(err)
			}
			continue
		}
		u.add(b, high, func(used, limit int64) int64 {
			return max(before.collectable(used, limit), after.collectable(used, limit))
		}, current)
	}
}

// highOf returns memory.high of a level, noLimit where there is none. v1 has none.
func (u *usage) highOf(level string) int64 {
	if u.group.v1 {
		return noLimit
	}
	v, err := readLimit(u.root, path.Join(u.group.dir(level), "memory.high"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noLimit
	case err != nil:
		u.high.miss(err)
		return noLimit
	}
	return v
}

func (u *usage) current(level string) (int64, error) {
	file := "memory.current"
	if u.group.v1 {
		file = "memory.usage_in_bytes"
	}
	return readCount(u.root, path.Join(u.group.dir(level), file))
}

// add compares the working set of a level with its limit and its memory.high. All of the
// memory counts where there is no memory.stat or no sense in it. One that cannot be read
// just now leaves the level out: that is no reason to shed.
func (u *usage) add(b bound, high int64, garbage func(used, limit int64) int64, current int64) {
	stat, err := readStat(u.root, path.Join(u.group.dir(b.level), "memory.stat"), u.group.v1)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, x := range []struct {
		limit int64
		into  *worst
	}{{b.bytes, &u.set}, {high, &u.high}} {
		switch {
		case x.limit == noLimit:
		case err != nil:
			x.into.miss(err)
		default:
			x.into.add(against(b.level, min(x.limit, u.physical), current, stat, garbage))
		}
	}
}

// against is the working set of a level over a limit, less what the collector can give back.
func against(level string, limit, current int64, stat memoryStat, garbage func(used, limit int64) int64) reading {
	used, p, raw := workingSetOf(current, stat)
	p.garbage = garbage(used, limit)
	r := ratio(used-p.garbage, limit)
	r.level, r.parts = level, p
	if raw != "" {
		r.reason = "all of the memory is counted: " + raw
	}
	return r
}
