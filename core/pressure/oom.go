package pressure

import (
	"errors"
	"io/fs"
	"path"
)

// oomFile is a file with counters of one level: how often its limit was hit with nothing
// left to reclaim, and how many of its tasks the kernel has killed.
type oomFile struct {
	name        string
	before      string // the file to read where there is no such one; "" = none
	oom, killed bool   // which of them to read
}

// oomFiles are the files that tell about this process. Of its own level everything
// counts. A level above counts where it has a limit, and by that limit only: a neighbour that
// is killed at its own limit is no pressure here, so the counters must be those without the
// descendants. Kernels before 5.2 have no file of that name, and no others in memory.events.
// One whose limit cannot be read may have one, so its counters are followed meanwhile.
func (g group) oomFiles(levels []bound) []oomFile {
	dir := g.dir(g.path)
	if g.v1 {
		return []oomFile{{name: path.Join(dir, "memory.oom_control"), killed: true}}
	}
	files := []oomFile{{name: path.Join(dir, "memory.events"), oom: true, killed: true}}
	for _, b := range levels {
		if b.level == g.path || b.bytes == noLimit && b.err == nil {
			continue
		}
		f := oomFile{name: path.Join(g.dir(b.level), "memory.events.local"), oom: true}
		if b.err == nil {
			f.before = path.Join(g.dir(b.level), "memory.events")
		}
		files = append(files, f)
	}
	return files
}

type oomCounts struct{ oom, killed int64 }

func (f oomFile) read(root fs.FS) (oomCounts, error) {
	c := oomCounts{-1, -1}
	keys := map[string]*int64{}
	if f.oom {
		keys["oom"] = &c.oom
	}
	if f.killed {
		keys["oom_kill"] = &c.killed
	}
	err := readKeys(root, f.name, keys)
	if f.before != "" && errors.Is(err, fs.ErrNotExist) {
		err = readKeys(root, f.before, keys)
	}
	if err != nil {
		return c, err
	}
	if c.oom < 0 && c.killed < 0 {
		return c, fileError(f.name, errors.New("no such counter in it"))
	}
	return c, nil
}

// oomWatch knows the counters of the sample before. The first value of a counter says
// nothing, one that went down has started anew.
type oomWatch struct {
	last map[string]oomCounts
	ooms int64 // rises since the watch began, kills included
}

// rise returns by how much a counter has risen.
func rise(last, now int64) int64 {
	if last < 0 || now < last {
		return 0
	}
	return now - last
}

// read returns what has happened since the last read, and whether a task of the own
// cgroup was killed. A file that cannot be read keeps its old values for the next time.
func (w *oomWatch) read(root fs.FS, files []oomFile) (r reading, killed bool) {
	next := make(map[string]oomCounts, len(files))
	var unread error
	rose := false
	for _, f := range files {
		c, err := f.read(root)
		last, ok := w.last[f.name]
		if !ok {
			last = oomCounts{-1, -1}
		}
		if err != nil {
			if unread == nil {
				unread = err
			}
			next[f.name] = last
			continue
		}
		r.known = true
		killed = killed || rise(last.killed, c.killed) > 0
		if n := rise(last.oom, c.oom) + rise(last.killed, c.killed); n > 0 {
			rose = true
			w.ooms += n
		}
		next[f.name] = oomCounts{keep(last.oom, c.oom), keep(last.killed, c.killed)}
	}
	w.last = next
	r.counts, r.value = rose, float64(w.ooms)
	if unread != nil {
		r.reason, r.trouble = unread.Error(), isTrouble(unread)
	}
	r.grade = calm()
	if rose {
		r.grade = grade{severity: Critical}
	}
	return r, killed
}

// keep is the value to compare the next one with.
func keep(last, now int64) int64 {
	if now < 0 {
		return last
	}
	return now
}
