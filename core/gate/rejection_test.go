package gate_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// reasons is the table of statuses: every reason, and whether a retry may help.
var reasons = []struct {
	reason  gate.Reason
	status  int
	retry   bool
	timeout bool
}{
	{"payload_too_large", 413, false, false},
	{"body_exceeds_budget", 413, false, false},
	{"cost_exceeds_limit", 413, false, false},
	{"admission_busy", 503, true, false},
	{"queue_full", 503, true, false},
	{"tenant_queue_full", 429, true, false},
	{"queue_timeout", 503, true, true},
	{"deadline", 503, true, true},
	{"displaced", 503, true, false},
	{"no_target", 503, true, false},
	{"resource_pressure", 503, true, false},
	{"shutting_down", 503, true, false},
	{"slow_body", 408, false, true},
	{"max_hold", 503, true, false},
	{"slot_lost", 503, true, false},
	{"canceled", 499, false, false},
}

// declaredReasons reads the constants of type Reason from the source.
func declaredReasons(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Reason" {
			for _, v := range spec.Values {
				s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				found[s] = true
			}
		}
		return true
	})
	return found
}

func TestEveryReason(t *testing.T) {
	declared := declaredReasons(t)
	if len(declared) != len(reasons) {
		t.Errorf("%d reasons are declared, the table has %d", len(declared), len(reasons))
	}
	for _, c := range reasons {
		t.Run(string(c.reason), func(t *testing.T) {
			if !declared[string(c.reason)] {
				t.Error("not declared")
			}
			r := &gate.Rejection{Reason: c.reason, Gate: "lanes", RetryAfter: 1500 * time.Millisecond}
			if got := r.Status(); got != c.status {
				t.Errorf("Status() = %d, want %d", got, c.status)
			}
			want := ""
			if c.retry {
				want = "2"
			}
			if got := r.RetryAfterSeconds(); got != want {
				t.Errorf("RetryAfterSeconds() = %q, want %q", got, want)
			}
			if got := r.Timeout(); got != c.timeout {
				t.Errorf("Timeout() = %t, want %t", got, c.timeout)
			}
			if c.reason.Error() != string(c.reason) {
				t.Errorf("Error() = %q", c.reason.Error())
			}
			text := strings.ReplaceAll(string(c.reason), "_", " ")
			local := strings.HasPrefix(r.Error(), "refused locally by lanes: ")
			if !strings.Contains(r.Error(), text) || local != (c.reason != gate.Canceled) {
				t.Errorf("Error() = %q", r.Error())
			}
		})
	}
}

func TestRejectionUnwraps(t *testing.T) {
	for _, c := range reasons {
		r := &gate.Rejection{Reason: c.reason, Gate: "inflight", Cause: context.DeadlineExceeded}
		err := fmt.Errorf("handler: %w", fmt.Errorf("call: %w", error(r)))
		if joined := errors.Join(errors.New("other"), err); !errors.Is(joined, c.reason) {
			t.Errorf("errors.Join hides %s", c.reason)
		}
		var got *gate.Rejection
		if !errors.As(err, &got) || got != r {
			t.Errorf("errors.As finds %v", got)
		}
		var reason gate.Reason
		if !errors.As(err, &reason) || reason != c.reason {
			t.Errorf("errors.As finds the reason %q, want %q", reason, c.reason)
		}
		for _, other := range reasons {
			if is := errors.Is(err, other.reason); is != (other.reason == c.reason) {
				t.Errorf("errors.Is(%s, %s) = %t", c.reason, other.reason, is)
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Error("the context's error is not reached, or a wrong one is")
		}
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || timeout.Timeout() != c.timeout {
			t.Errorf("%s: Timeout() through a wrap is not %t", c.reason, c.timeout)
		}
	}
	plain := &gate.Rejection{Reason: gate.QueueFull}
	if errors.Is(plain, context.Canceled) || errors.Is(plain, context.DeadlineExceeded) || len(plain.Unwrap()) != 1 {
		t.Errorf("without a cause it unwraps to %v", plain.Unwrap())
	}
	var none gate.Rejection
	if none.Error() == "" || none.Status() != 503 || none.RetryAfterSeconds() != "" || none.Timeout() {
		t.Errorf("zero rejection: %q, %d, %q", none.Error(), none.Status(), none.RetryAfterSeconds())
	}
}

func TestRejectionText(t *testing.T) {
	for _, c := range []struct {
		r    gate.Rejection
		want string
	}{
		{
			gate.Rejection{Reason: gate.QueueTimeout, Gate: "inflight", Lane: "BASE|MODEL", Class: gate.Bulk,
				Waited: 300 * time.Second, Position: 14, Limit: 6, RetryAfter: time.Minute, Cause: context.DeadlineExceeded,
				Advice: "raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane"},
			`refused locally by inflight: lane "BASE|MODEL": queue timeout after 300.0s at position 14 (class bulk, limit 6): ` +
				`raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane`,
		},
		{
			gate.Rejection{Reason: gate.BodyExceedsBudget, Gate: "admission", Limit: 8 << 20, Unit: "bytes",
				Advice: "send less or raise MaxInflightBytes"},
			`refused locally by admission: body exceeds budget (limit 8388608 bytes): send less or raise MaxInflightBytes`,
		},
		{
			gate.Rejection{Reason: gate.Canceled, Gate: "lanes", Class: gate.Interactive, Waited: 1249 * time.Millisecond, Position: 2},
			`lanes: canceled after 1.2s at position 2 (class interactive)`,
		},
		{gate.Rejection{Reason: gate.ShuttingDown, Gate: "lanes"}, `refused locally by lanes: shutting down`},
		{gate.Rejection{Reason: gate.QueueFull, Gate: "lanes", Waited: -1, Position: -1, Limit: -1}, `refused locally by lanes: queue full`},
		{gate.Rejection{Reason: gate.QueueFull, Gate: "lanes", Lane: "a\nb\"c"}, `refused locally by lanes: lane "a\nb\"c": queue full`},
		{gate.Rejection{Reason: gate.QueueFull, Gate: "lanes", Class: 9}, `refused locally by lanes: queue full (class class(9))`},
	} {
		if got := c.r.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// checkRetry holds RetryAfterSeconds against a ceiling in unbounded numbers.
func checkRetry(t *testing.T, d time.Duration) {
	t.Helper()
	want := ""
	if d > 0 {
		n := new(big.Int).Add(big.NewInt(int64(d)), big.NewInt(int64(time.Second)-1))
		want = n.Div(n, big.NewInt(int64(time.Second))).String()
	}
	for _, c := range reasons {
		r := &gate.Rejection{Reason: c.reason, RetryAfter: d}
		exp := want
		if !c.retry {
			exp = ""
		}
		got := r.RetryAfterSeconds()
		if got != exp {
			t.Errorf("%s, %d ns: %q, want %q", c.reason, int64(d), got, exp)
		}
		if n, err := strconv.ParseInt(got, 10, 64); got != "" && (err != nil || n < 1) {
			t.Errorf("%s, %d ns: %q is not an integer >= 1", c.reason, int64(d), got)
		}
	}
}

func TestRetryAfterSeconds(t *testing.T) {
	for _, base := range []int64{math.MinInt64, -1e9, 0, 1e9, 40e9, 60e9, math.MaxInt64/1e9*1e9 - 1e9, math.MaxInt64 / 1e9 * 1e9, math.MaxInt64} {
		for delta := int64(-2); delta <= 2; delta++ {
			checkRetry(t, time.Duration(base+delta)) // wraps around at the ends, which is as good a case
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		checkRetry(t, time.Duration(r.Uint64()>>r.IntN(64))) // of every magnitude, negative too
	}
}
