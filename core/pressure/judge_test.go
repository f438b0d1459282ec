package pressure

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The letters of a history: c a clean sample, b one between recovered and high, h high, C critical,
// o an OOM counter that has risen, k one with a kill.
func gradesOf(letter rune) (g [signals]grade, killed bool) {
	for i := range g {
		g[i] = calm()
	}
	switch letter {
	case 'b':
		g[workingSet] = grade{}
	case 'h':
		g[workingSet] = grade{severity: High}
	case 'C':
		g[workingSet] = grade{severity: Critical}
	case 'o', 'k':
		g[oom] = grade{severity: Critical}
	}
	return g, letter == 'k'
}

const hold = 10 * time.Second

// play returns the severities after each sample of a history, one second apart: n, h or c.
func play(history string) string {
	var j judge
	now := time.Unix(1000, 0)
	var out strings.Builder
	for _, letter := range history {
		g, killed := gradesOf(letter)
		was := j.severity
		if changed := j.step(now, &g, killed, hold); changed != (was != j.severity) {
			return fmt.Sprintf("%s, and then changed is %v", out.String(), changed)
		}
		out.WriteByte(j.severity.String()[0])
		now = now.Add(time.Second)
	}
	return out.String()
}

func TestJudge(t *testing.T) {
	for _, c := range []struct{ name, history, want string }{
		{"two samples to rise", "cChcCCc", "nnhnncn"},
		{"two samples, the lesser counts", "chCC", "nnhc"},
		{"two samples, not in a row", "hcCchb", "nnnnnn"},
		{"from high to critical it takes two", "hhCbCC", "nhhhhc"},
		{"one clean sample recovers from critical", "CCc", "ncn"},
		{"one clean sample recovers from high", "hhc", "nhn"},
		{"between is not clean", "hhbbb", "nhhhh"},
		{"stuck below critical", "CCbbbb", "nccchh"},
		{"stuck at high below critical", "CChhhh", "nccchh"},
		{"one critical sample starts the count anew", "CCbbCbbb", "nccccc" + "ch"},
		{"stuck below high", "hhbbbbbbbbbbb", "nhhhhhhhhhhnn"},
		{"one high sample starts the count anew", "hhbbbbbbbbbhbbbbbbbbbb", "nhhhhhhhhhhhhhhhhhhhhn"},
		{"after the fall from critical the count starts anew", "CCbbbbbbbbbbbbb", "nccch" + "hhhhhhhhh" + "n"},
		{"between alone never rises", "bbbbbbbbbbbbbbb", "nnnnnnnnnnnnnnn"},
		{"oom is critical at once, and over with a clean sample", "oc", "cn"},
		{"oom from high", "hhoh", "nhcc"},
		{"a kill holds for 10 s", "kcccccccccc", "ccccccccccn"},
		{"a kill holds, then the stuck rule", "kbbbbbbbbbb", "cccccccccch"},
		{"two kills", "kcccckcccccccccc", "cccccccccccccccn"},
		{"oom while held changes nothing about the end", "kccccoccccc", "ccccccccccn"},
	} {
		if got := play(c.history); got != c.want {
			t.Errorf("%s: %s gives %s, want %s", c.name, c.history, got, c.want)
		}
	}
}

// model is the rules, told from the whole history at each sample.
type model struct {
	letters  []rune
	at       []time.Time
	severity []Severity
}

func (m *model) worst(i int) Severity {
	switch m.letters[i] {
	case 'h':
		return High
	case 'C', 'o', 'k':
		return Critical
	}
	return Normal
}

func (m *model) before(i int) Severity {
	if i == 0 {
		return Normal
	}
	return m.severity[i-1]
}

// row is how many samples up to the last one are below s, since the severity became what it is.
func (m *model) row(s Severity) (n int) {
	for i := len(m.letters) - 1; i >= 0 && m.worst(i) < s; i-- {
		if i < len(m.letters)-1 && m.severity[i] != m.before(i) {
			break // this sample made it what it is
		}
		n++
	}
	return n
}

func (m *model) step(letter rune, now time.Time) Severity {
	m.letters, m.at = append(m.letters, letter), append(m.at, now)
	i := len(m.letters) - 1
	s := m.before(i)
	held := false
	for k, l := range m.letters {
		held = held || l == 'k' && now.Sub(m.at[k]) < hold
	}
	both := Normal
	if i > 0 {
		both = min(m.worst(i), m.worst(i-1))
	}
	switch {
	case letter == 'o' || letter == 'k':
		s = Critical
	case both > s:
		s = both
	case held:
	case letter == 'c':
		s = Normal
	case s == Critical && m.row(Critical) >= 3:
		s = High
	case s == High && m.row(High) >= 10:
		s = Normal
	}
	m.severity = append(m.severity, s)
	return s
}

// Thousands of random histories, with samples that come early and late.
func TestJudgeModel(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 7))
		// Each history has its own mix, so that long runs of one letter come about.
		letters := []rune("cbhCok")[:2+r.IntN(5)]
		sticky := r.IntN(10)
		var j judge
		var m model
		now := time.Unix(1000, 0)
		letter := letters[0]
		for range 120 {
			if r.IntN(10) >= sticky {
				letter = letters[r.IntN(len(letters))]
			}
			g, killed := gradesOf(letter)
			was := j.severity
			j.step(now, &g, killed, hold)
			if want := m.step(letter, now); j.severity != want {
				t.Fatalf("seed %d: after %q got %v, want %v (severities %v)", seed, string(m.letters), j.severity, want, m.severity)
			}
			if was != j.severity {
				seen[was.String()+" to "+j.severity.String()]++
			}
			now = now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
	}
	for _, change := range []string{
		"normal to high", "normal to critical", "high to critical", "high to normal", "critical to high", "critical to normal",
	} {
		if seen[change] < 100 {
			t.Errorf("only %d changes from %s: %v", seen[change], change, seen)
		}
	}
}

// Of equal severities the first signal of the table is named, and a signal that keeps
// the severity up takes over.
func TestJudgeCause(t *testing.T) {
	var j judge
	step := func(want signal, grades map[signal]Severity) {
		t.Helper()
		g, _ := gradesOf('c')
		for id, s := range grades {
			g[id] = grade{severity: s}
		}
		j.step(time.Unix(0, 0), &g, false, hold)
		if j.cause != want {
			t.Errorf("%v: cause %v, want %v", grades, j.cause, want)
		}
	}
	step(psiSome, map[signal]Severity{psiSome: High, gcShare: High})
	step(liveHeap, map[signal]Severity{psiSome: High, liveHeap: High, gcShare: High})
	step(gcShare, map[signal]Severity{psiSome: High, gcShare: Critical})
	step(psiFull, map[signal]Severity{psiFull: Critical, gcShare: High})
	step(psiFull, map[signal]Severity{liveHeap: High}) // critical still, by what made it so
	step(psiFull, map[signal]Severity{liveHeap: Normal})
	step(liveHeap, map[signal]Severity{liveHeap: High}) // the third below critical
	if j.severity != High {
		t.Errorf("severity %v", j.severity)
	}
}

// B23: both ends count, also 0, and what is not ordered is refused.
func TestThresholds(t *testing.T) {
	z := Thresholds{High: 30, Critical: 60, Recovered: 0}
	for v, want := range map[float64]grade{
		0: {Normal, true}, 0.01: {}, 29.99: {}, 30: {severity: High}, 59.99: {severity: High}, 60: {severity: Critical}, 100: {severity: Critical},
	} {
		if got := z.grade(v); got != want {
			t.Errorf("%v: %+v, want %+v", v, got, want)
		}
	}
}
