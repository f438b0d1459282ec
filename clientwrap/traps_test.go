package clientwrap_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
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
	49: "a shared back end that is out: the Redis adapter",
	51: "deadlocks of MaxConnsPerHost: it is not used",
	55: "streams of HTTP/2: the lane's limit should be below the peer's, which a RoundTripper cannot ask for",
	56: "http.ClientConn is a RoundTripper, and so a base; it is newer than the Go that this module needs",
}

const traps = 63

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
