package lanes

import (
	"context"

	"github.com/headgate-go/headgate/core/gate"
)

// MaxPrice is the most that [Price] asks.
const MaxPrice = 1000

// Features are what a request to a model is priced by. What is not known is 0; negative
// numbers count as 0.
type Features struct {
	Bytes    int64 // of the body
	Tokens   int64 // that the request declares for output, or the caller's own count
	Messages int64
	Tools    int64
	N        int64 // answers asked for; 0 counts as 1
	Stream   bool
}

// Price is the cost of a request:
//
//	min(1000, 1 + ceil(bytes/16K) + ceil(tokens/1K) + ceil(messages/32) + ceil(tools/8) + n + class)
//
// where K is 1024 and class is 1 for a stream and 2 for none. A small call that is no
// stream costs 6. Bytes and tokens stand for different things, and neither is derived
// from the other: a body is not charged twice.
func Price(f Features) int64 {
	class := int64(2)
	if f.Stream {
		class = 1
	}
	sum := 1 + class
	for _, n := range [...]int64{
		quanta(f.Bytes, 16<<10), quanta(f.Tokens, 1<<10), quanta(f.Messages, 32), quanta(f.Tools, 8), max(f.N, 1),
	} {
		sum += min(n, MaxPrice) // so that no sum can overflow
	}
	return min(sum, MaxPrice)
}

// quanta is n over size, rounded up; 0 for n below 0.
func quanta(n, size int64) int64 {
	if n <= 0 {
		return 0
	}
	return (n-1)/size + 1
}

// unknownBytes is what a length that is not known counts as: from there on admission
// takes a body for a heavy one. A client must not have a large body cheaper by sending it
// in chunks.
const unknownBytes = 256 << 10

// priceOf is the default price of a request: that of its bytes. One of a length that is not
// known costs MaxLimit at most: nothing is refused for good because of a guess.
func (s *settings) priceOf(r *gate.Request) int64 {
	if r.Bytes < 0 {
		return min(Price(Features{Bytes: unknownBytes, Messages: 1}), s.most)
	}
	return Price(Features{Bytes: r.Bytes, Messages: 1})
}

// price is what r costs.
func (c *Controller) price(ctx context.Context, s *settings, r *gate.Request) int64 {
	switch {
	case r.Cost > 0:
		return r.Cost
	case s.Cost == nil:
		return s.priceOf(r)
	}
	if n, ok := guarded(ctx, s.Cost, *r); ok {
		return n
	}
	c.costErrors.Add(1)
	return s.priceOf(r)
}

// guarded calls a cost function and reports whether there is a price.
func guarded(ctx context.Context, f func(context.Context, gate.Request) (int64, error), r gate.Request) (n int64, ok bool) {
	defer func() {
		if recover() != nil {
			n, ok = 0, false
		}
	}()
	n, err := f(ctx, r)
	return n, err == nil && n >= 1
}

// streams reports whether r will be answered by a stream.
func (s *settings) streams(ctx context.Context, r *gate.Request) bool {
	if s.Stream == nil {
		return false
	}
	defer func() { _ = recover() }()
	return s.Stream(ctx, *r)
}
