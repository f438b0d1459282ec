package llmcost

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

const (
	maxName   = len("functiondeclarations") // the longest name of a field, folded
	maxNumber = 64                          // bytes of a number, as it is written
)

// fold returns the one form of all the ways to spell a field's name, or nil for what is
// none. Gemini takes camelCase and snake_case for the same; servers written in Go do not
// tell upper case from lower, nor K and ſ from k and s.
func fold(key []byte, buf *[maxName]byte) []byte {
	name := buf[:0]
	for i := 0; i < len(key); {
		c, size := key[i], 1
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c >= utf8.RuneSelf:
			var r rune
			r, size = utf8.DecodeRune(key[i:])
			switch r {
			case '\u212a': // the sign of the kelvin
				c = 'k'
			case 'ſ':
				c = 's'
			default:
				return nil
			}
		}
		i += size
		if c == '_' {
			continue
		}
		if len(name) == maxName {
			return nil
		}
		name = append(name, c)
	}
	return name
}

// parse returns the number that raw, a JSON number or string, stands for: rounded up, 0
// for what is negative, and the largest there is for what is larger, no number, or
// longer than any number needs to be.
func parse(raw []byte) int64 {
	if len(raw) > maxNumber {
		return math.MaxInt64
	}
	if raw[0] == '"' {
		raw = bytes.TrimSpace(raw[1 : len(raw)-1])
	}
	if len(bytes.Trim(raw, "+-.0123456789eE")) > 0 { // strconv knows more numbers than these
		return math.MaxInt64
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return max(n, 0)
	}
	f, err := strconv.ParseFloat(string(raw), 64) // infinite beyond its range
	switch {
	case f < 0 || f == 0 && err == nil:
		return 0
	case f > 0 && f < 1<<63:
		return int64(math.Ceil(f))
	default:
		return math.MaxInt64
	}
}
