package lanes

import (
	"context"
	"io"
	"math"
	"math/big"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
)

// The formula, worked out by hand.
func TestPrice(t *testing.T) {
	for _, c := range []struct {
		f    Features
		want int64
	}{
		{Features{}, 4},
		{Features{Stream: true}, 3},
		{Features{Bytes: 2 << 10, Messages: 1}, 6},
		{Features{Bytes: 2 << 10, Messages: 1, Stream: true}, 5},
		{Features{Bytes: 16 << 10, Messages: 1}, 6},
		{Features{Bytes: 16<<10 + 1, Messages: 1}, 7},
		{Features{Bytes: 1, Tokens: 1024, Messages: 32, Tools: 8}, 8},
		{Features{Bytes: 1, Tokens: 1025, Messages: 33, Tools: 9}, 11},
		{Features{Bytes: 1, Messages: 1, N: 4}, 9},
		{Features{Bytes: -1, Tokens: -1, Messages: -1, Tools: -1, N: -1}, 4},
		{Features{Bytes: 16 << 20}, 1000},
		{Features{Bytes: math.MaxInt64, Tokens: math.MaxInt64, Messages: math.MaxInt64, Tools: math.MaxInt64, N: math.MaxInt64}, 1000},
	} {
		if got := Price(c.f); got != c.want {
			t.Errorf("%+v costs %d, want %d", c.f, got, c.want)
		}
	}
}

// A body of unknown length is no small call: it costs as one of 256 KiB, in every mode and
// where a cost function fails; one that is not there costs nothing by its length.
func TestUnknownLength(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"enforce": func(*Config) {}, "lanes": virtual, "shadow": func(c *Config) { c.Mode = gate.Shadow },
		"a cost function that fails": func(c *Config) {
			c.Cost = func(context.Context, gate.Request) (int64, error) { panic("as users do") }
		},
	} {
		l := enforcing(t, change)
		for bytes, want := range map[int64]int64{-1: 21, math.MinInt64: 21, 256 << 10: 21, 0: 5, 1: 6} {
			lease, err := l.Acquire(context.Background(), gate.Request{Bytes: bytes})
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Snapshot().InflightCost; got != want {
				t.Errorf("%s: %d bytes cost %d, want %d", name, bytes, got, want)
			}
			lease.Release()
		}
	}
}

// A guess refuses nothing for good: below a MaxLimit of 21 a body of unknown length costs all
// there may ever be, and one that is known to cost more is refused.
func TestUnknownLengthAtASmallLimit(t *testing.T) {
	fails := func(context.Context, gate.Request) (int64, error) { return 0, io.ErrUnexpectedEOF }
	for _, cost := range []func(context.Context, gate.Request) (int64, error){nil, fails} {
		l := enforcing(t, func(c *Config) {
			virtual(c)
			c.MinLimit, c.InitialLimit, c.MaxLimit, c.Cost = 4, 10, 20, cost
		})
		lease, err := l.Acquire(context.Background(), gate.Request{Bytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Snapshot().InflightCost; got != 10 {
			t.Errorf("it is charged %d, want the whole limit, 10", got)
		}
		lease.Release()
		if rej := reject(t, l, gate.Request{Bytes: 256 << 10}); rej.Reason != gate.CostExceedsLimit {
			t.Errorf("%v", rej)
		}
	}
}

// bigPrice is the formula in numbers that cannot overflow.
func bigPrice(f Features) int64 {
	class := int64(2)
	if f.Stream {
		class = 1
	}
	sum := big.NewInt(1 + class)
	for _, part := range []struct{ n, size int64 }{{f.Bytes, 16384}, {f.Tokens, 1024}, {f.Messages, 32}, {f.Tools, 8}, {max(f.N, 1), 1}} {
		n := big.NewInt(max(part.n, 0))
		n.Add(n, big.NewInt(part.size-1))
		sum.Add(sum, n.Div(n, big.NewInt(part.size)))
	}
	if sum.Cmp(big.NewInt(1000)) > 0 {
		return 1000
	}
	return sum.Int64()
}

// Whatever is declared, the price is that of the formula, between 3 and 1000, and never
// lower for more.
func FuzzPrice(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), int64(0), false)
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(1), int64(-1), int64(1<<40), true)
	f.Fuzz(func(t *testing.T, bytes, tokens, messages, tools, n int64, stream bool) {
		x := Features{bytes, tokens, messages, tools, n, stream}
		got := Price(x)
		if got != bigPrice(x) || got < 3 || got > 1000 {
			t.Fatalf("%+v costs %d, want %d", x, got, bigPrice(x))
		}
		if x.Bytes < math.MaxInt64-1<<20 {
			x.Bytes += 1 << 20
			if Price(x) < got {
				t.Fatalf("%+v costs less than with 1 MiB fewer", x)
			}
		}
	})
}
