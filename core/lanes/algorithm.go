package lanes

import "fmt"

// Algorithm says what moves the limit. The zero Algorithm is not set and is a
// configuration error.
type Algorithm uint8

// The algorithms.
const (
	// Gradient lowers the limit when the latency rises above what is usual.
	Gradient Algorithm = iota + 1
	// AIMD lowers the limit when the back end answers with errors: 429, 5xx, or none.
	AIMD
	// Fixed leaves the limit at InitialLimit, whatever happens.
	Fixed
)

var algorithmNames = [...]string{"unset", "gradient", "aimd", "fixed"}

// String returns "gradient", "aimd" or "fixed", and "unset" for the zero Algorithm.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

func (a Algorithm) valid() bool { return a >= Gradient && a <= Fixed }

// MarshalText returns the algorithm's name. It is an error for one that is not set or
// does not exist.
func (a Algorithm) MarshalText() ([]byte, error) {
	if !a.valid() {
		return nil, fmt.Errorf("algorithm %d does not exist", uint8(a))
	}
	return []byte(a.String()), nil
}

// UnmarshalText sets a from "gradient", "aimd" or "fixed", or leaves it and returns an
// error.
func (a *Algorithm) UnmarshalText(b []byte) error {
	for i := Gradient; i <= Fixed; i++ {
		if string(b) == i.String() {
			*a = i
			return nil
		}
	}
	return fmt.Errorf("algorithm %.40q: want gradient, aimd or fixed", b)
}
