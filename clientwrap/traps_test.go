package clientwrap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// elsewhere says why a trap of an outbound limiter has no test in this package. Each of
// the others has one that is named by its number.
var elsewhere = map[int]string{
	10: "a back end that goes on after its caller has left: the package's comment says so; no linger, since its length could only be guessed",
	19: "budgets for retries: what retries has them; nothing here does",
	35: "wakes one waiter, never all: the engine, core/internal/waitq",
	36: "no polling: the engine, core/internal/waitq",
	38: "starvation: aging is core/inflight's and the engine's",
	39: "aging keeps the classes: core/inflight and the engine",
	40: "aging can be off: core/inflight's AgingStep",
	42: "a reserve strands no slot of more than its own: core/inflight's InteractiveReserve",
	46: "a call heavier than the limit: a call is one slot",
	47: "classes have names, not numbers: core/gate",
	49: "a store that processes share, and that is out: there is none yet; limits are this process's own, as the package's comment says",
	51: "deadlocks of MaxConnsPerHost: it is not used",
	55: "streams of HTTP/2: the lane's limit should be below the peer's, which a RoundTripper cannot ask for; the package's comment says so",
	56: "http.ClientConn is a RoundTripper, and so a base; it is newer than the Go that this module needs",
}

const traps = 63

// casesElsewhere says the same of the acceptance cases for clients, G1 to G16 (there is
// no G3, G10 and G13). The others are named in the name or the comment of a test.
var casesElsewhere = map[string]string{
	"G8":  "hedging: nothing here does",
	"G9":  "hedging: nothing here does",
	"G12": "calls that share one probe: nothing here does",
	"G16": "a listener that is full: inbound",
}

var cases = []string{
	"G1", "G2", "G4", "G5", "G6", "G7", "G8", "G9", "G11", "G12", "G14", "G15", "G16", "T49", "T50", "T51", "T52",
}

// Every case has a test that names it, or a reason above.
func TestEveryCase(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	id := regexp.MustCompile(`\b(?:Test)?([GT][0-9]{1,2})(?:\b|_)`)
	tested := make(map[string]bool)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestEveryCase" {
				for _, m := range id.FindAllStringSubmatch(fn.Name.Name+" "+fn.Doc.Text(), -1) {
					tested[m[1]] = true
				}
			}
		}
	}
	for _, c := range cases {
		assert.NotEqual(t, tested[c], casesElsewhere[c] != "", "%s: want a test or a reason, and not both", c)
	}
}

// Every trap has a test that is named by its number, or a reason above.
func TestEveryTrap(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	number := regexp.MustCompile(`^TestTrap([0-9]{2})_`)
	tested := make(map[int]bool)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				if m := number.FindStringSubmatch(fn.Name.Name); m != nil {
					n, err := strconv.Atoi(m[1])
					require.NoError(t, err)
					tested[n] = true
				}
			}
		}
	}
	for n := 1; n <= traps; n++ {
		assert.NotEqual(t, tested[n], elsewhere[n] != "", "trap %d: want a test or a reason, and not both", n)
	}
	assert.Len(t, elsewhere, traps-len(tested))
}
