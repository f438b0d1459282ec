package gate

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. As text it is a whole number with an optional
// unit: B, binary KiB, MiB, GiB, TiB, or decimal KB, MB, GB, TB; "65536", "64MiB"
// and "2GB" for example. A sign is allowed; what takes a Size refuses a negative
// one where it makes no sense.
type Size int64

var sizeUnits = []struct {
	name string
	mul  int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// String returns s in the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && int64(s)%u.mul == 0 {
			return strconv.FormatInt(int64(s)/u.mul, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText returns String's form.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s to the size that b holds. A fraction, a space, an
// unknown unit or a number that overflows is an error and leaves s alone.
func (s *Size) UnmarshalText(b []byte) error {
	text, mul := string(b), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			text, mul = rest, u.mul
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("size %s: want a whole number of bytes, or one with a unit such as 64MiB", quote(string(b)))
	}
	if err != nil || n > math.MaxInt64/mul || n < math.MinInt64/mul {
		return fmt.Errorf("size %s: does not fit in 64 bits", quote(string(b)))
	}
	*s = Size(n * mul)
	return nil
}
