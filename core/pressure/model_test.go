package pressure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// level is one directory of a random chain: what its limit file holds, and what that means.
type level struct {
	name    string // of the directory
	content string
	absent  bool
	denied  bool
	bytes   int64 // the limit; 0 = none
	told    bool  // a Reason must tell about it
}

func randomLevel(r *rand.Rand, i int, v1 bool) level {
	l := level{name: []string{"a", "b:c", "d e", `f\x2dg.slice`, "max"}[r.IntN(5)] + fmt.Sprint(i)}
	unlimited := "max"
	if v1 {
		unlimited = []string{"9223372036854771712", "9223372036854710272", "18446744073709551615"}[r.IntN(3)]
	}
	switch r.IntN(8) {
	case 0:
		l.absent = true
	case 1:
		l.denied, l.told = true, true
	case 2:
		l.content, l.told = []string{"", "0", "-1", "junk", "1 2"}[r.IntN(5)], true
	case 3, 4:
		l.content = unlimited
	default:
		l.bytes = int64(r.IntN(6)+1) * gib // few values, so that there are ties
		l.content = fmt.Sprint(l.bytes)
	}
	l.content += []string{"", "\n", "\r\n"}[r.IntN(3)]
	return l
}

// world is a random machine: the chain of cgroups from the root of the mount (first) to the
// process (last), and where it is mounted.
type world struct {
	v1          bool
	chain       []level
	mountRoot   string // the part of the path that the mount hides
	point       string
	memTotal    int64 // 0 = no meminfo
	memoryLimit int64
}

func randomWorld(r *rand.Rand) world {
	w := world{
		v1:          r.IntN(2) == 0,
		mountRoot:   []string{"", "/docker/abc", "/..", "/../.."}[r.IntN(4)],
		point:       []string{"/sys/fs/cgroup", "/my cgroups", "/"}[r.IntN(3)],
		memTotal:    int64(r.IntN(7)) * gib,
		memoryLimit: int64(r.IntN(8)) * gib,
	}
	if w.memoryLimit == 7*gib {
		w.memoryLimit = math.MaxInt64
	}
	for i := range r.IntN(6) + 1 {
		w.chain = append(w.chain, randomLevel(r, i, w.v1))
	}
	return w
}

func (w world) tree(r *rand.Rand) failFS {
	file, other, kind := "memory.max", "memory.limit_in_bytes", "cgroup2 none rw"
	if w.v1 {
		file, other, kind = other, file, "cgroup none rw,cpu,memory"
	}
	tree, root := files{}, failFS{open: map[string]error{}}
	if w.memTotal > 0 {
		tree["proc/meminfo"] = fmt.Sprintf("MemFree: 1 kB\nMemTotal: %d kB\n", w.memTotal>>10)
	}
	path := ""
	for i, l := range w.chain {
		if i > 0 {
			path += "/" + l.name
		}
		dir := fsPath(w.point + path)
		if dir == "." {
			dir = ""
		} else {
			dir += "/"
		}
		tree[dir+"cgroup.procs"] = ""
		tree[dir+"memory.high"] = "1"
		tree[dir+other] = "1"
		tree[dir+"sibling/"+file] = "1"
		if !l.absent {
			tree[dir+file] = l.content
		}
		if l.denied {
			root.open[dir+file] = fmt.Errorf("denied")
		}
	}
	own := w.mountRoot + path
	if own == "" {
		own = "/"
	}
	lines := []string{"7:pids:/elsewhere", "garbage", "0::" + own}
	if w.v1 {
		lines = []string{"7:pids:/elsewhere", "garbage", "5:cpu,memory:" + own, "0::/elsewhere"}
	}
	r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	tree["proc/self/cgroup"] = strings.Join(lines, "\n")
	mountRoot := w.mountRoot
	if mountRoot == "" {
		mountRoot = "/"
	}
	tree["proc/self/mountinfo"] = fmt.Sprintf("1 1 0:1 / /proc rw - proc proc rw\n2 1 0:2 %s %s rw shared:1 - %s\n", escape(mountRoot), escape(w.point), kind)
	root.FS = tree.fs()
	return root
}

// want is the dumb model: the minimum over the chain, then over the sources.
func (w world) want() (c Ceiling, told bool) {
	files := 0
	for i := len(w.chain) - 1; i >= 0; i-- {
		l := w.chain[i]
		told = told || l.told
		if !l.absent {
			files++
		}
		if l.bytes > 0 && (c.Bytes == 0 || l.bytes < c.Bytes) {
			path := ""
			for _, up := range w.chain[1 : i+1] {
				path += "/" + up.name
			}
			c = Ceiling{Bytes: l.bytes, Source: SourceCgroup, Path: "/" + strings.TrimPrefix(path, "/")}
		}
	}
	if w.memoryLimit > 0 && w.memoryLimit < math.MaxInt64 && (c.Bytes == 0 || w.memoryLimit < c.Bytes) {
		c = Ceiling{Bytes: w.memoryLimit, Source: SourceGOMEMLIMIT}
	}
	if w.memTotal > 0 && (c.Bytes == 0 || w.memTotal < c.Bytes) {
		c = Ceiling{Bytes: w.memTotal, Source: SourcePhysical}
	}
	return c, told || files == 0 || w.memTotal == 0 || w.memoryLimit == 0
}

func TestCeilingModel(t *testing.T) {
	sources := map[Source]int{}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		root := w.tree(r)
		got := ReadCeiling(root, w.memoryLimit)
		want, told := w.want()
		if again := ReadCeiling(root, w.memoryLimit); again != got {
			t.Fatalf("seed %d: %+v, then %+v", seed, got, again)
		}
		reason := got.Reason
		if got.Reason = ""; got != want || (reason != "") != told {
			t.Fatalf("seed %d: got %+v, reason %q; want %+v, told %v\n%+v", seed, got, reason, want, told, w)
		}
		sources[got.Source]++
	}
	for _, s := range []Source{"", SourceCgroup, SourceGOMEMLIMIT, SourcePhysical} {
		if sources[s] < 10 {
			t.Errorf("only %d worlds with source %q: %v", sources[s], s, sources)
		}
	}
}
