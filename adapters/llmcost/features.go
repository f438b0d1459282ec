package llmcost

import (
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/core/lanes"
)

// The errors of [Features]. They say nothing of what is in the body.
var (
	// ErrNotJSON says that the body is not one JSON value and nothing else.
	ErrNotJSON = errors.New("llmcost: the body is not JSON")
	// ErrTooComplex says that the body is nested too deep or holds too many values. The
	// error that wraps it names the limit.
	ErrTooComplex = errors.New("llmcost: the body is too complex")

	errDepth  = fmt.Errorf("%w: nested deeper than %d", ErrTooComplex, maxDepth)
	errValues = fmt.Errorf("%w: more than %d values", ErrTooComplex, maxValues)
)

// Features reads a request's body, which it neither changes nor keeps, and returns what
// [lanes.Price] prices it by. No number is negative, and Bytes is the body's length,
// whatever else there is.
//
// The error is [ErrNotJSON] or wraps [ErrTooComplex]. The features then have no meaning
// but that they cost lanes.MaxPrice, so that who drops the error charges enough.
//
// No error: an empty body, JSON that is no request of the APIs that the package comment
// names, and a body so long that its length alone costs lanes.MaxPrice, which is not
// looked at. They have their length, and count as one message.
func Features(body []byte) (lanes.Features, error) {
	f := lanes.Features{Bytes: int64(len(body)), Messages: 1}
	if len(body) == 0 || lanes.Price(f) == lanes.MaxPrice {
		return f, nil
	}
	var s scan
	if err := s.read(body); err != nil {
		f.N = lanes.MaxPrice
		return f, err
	}
	f.Tokens = s.tokens
	f.Messages = max(s.messages+s.system, 1)
	f.Tools = s.tools + s.functions
	f.N = s.n
	f.Stream = s.stream && !s.notStream
	return f, nil
}

// Price returns what a request with this body costs, 1 to [lanes.MaxPrice]: lanes.Price
// of its [Features], which is lanes.MaxPrice where Features returns an error.
func Price(body []byte) int64 {
	f, _ := Features(body)
	return lanes.Price(f)
}
