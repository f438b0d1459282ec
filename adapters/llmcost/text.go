package llmcost

import (
	"bytes"
	"math"
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

// parse returns the number that raw, a JSON number or string, stands for: to the last digit,
// rounded up, 0 for what is negative, and the largest there is for what is larger, no number,
// or longer than any number needs to be.
func parse(raw []byte) int64 {
	if len(raw) > maxNumber {
		return math.MaxInt64
	}
	if raw[0] == '"' {
		raw = bytes.TrimSpace(raw[1 : len(raw)-1])
	}
	raw, negative := sign(raw)
	var buf [maxNumber]byte
	digits, point := buf[:0], -1
	for len(raw) > 0 && (isDigit(raw[0]) || raw[0] == '.' && point < 0) {
		if raw[0] == '.' {
			point = len(digits)
		} else {
			digits = append(digits, raw[0]-'0')
		}
		raw = raw[1:]
	}
	if point < 0 {
		point = len(digits)
	}
	shift, ok := exponent(raw)
	switch {
	case !ok || len(digits) == 0:
		return math.MaxInt64
	case negative:
		return 0
	}
	return roundUp(digits, point+shift)
}

// sign takes the sign off a number, if it has one.
func sign(raw []byte) (rest []byte, negative bool) {
	if len(raw) > 0 && (raw[0] == '+' || raw[0] == '-') {
		return raw[1:], raw[0] == '-'
	}
	return raw, false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// exponent reads what stands behind the digits of a number. One that is beyond a thousand is as
// good as a thousand. ok is false for what is no exponent; none is 0.
func exponent(raw []byte) (n int, ok bool) {
	if len(raw) == 0 {
		return 0, true
	}
	if raw[0] != 'e' && raw[0] != 'E' {
		return 0, false
	}
	raw, negative := sign(raw[1:])
	for _, c := range raw {
		if !isDigit(c) {
			return 0, false
		}
		n = min(10*n+int(c-'0'), 1000)
	}
	if negative {
		n = -n
	}
	return n, len(raw) > 0
}

// roundUp returns the number whose digits these are, point of them before the point: as many as
// that, or none where it is below 0. It is rounded up, and math.MaxInt64 at most.
func roundUp(digits []byte, point int) int64 {
	for len(digits) > 0 && digits[0] == 0 {
		digits, point = digits[1:], point-1
	}
	if len(digits) == 0 {
		return 0
	}
	if point > 19 {
		return math.MaxInt64
	}
	n := uint64(0) // has room for any 19 digits
	for i := range max(point, 0) {
		n *= 10
		if i < len(digits) {
			n += uint64(digits[i])
		}
	}
	if rest := digits[min(max(point, 0), len(digits)):]; len(bytes.Trim(rest, "\x00")) > 0 {
		n++
	}
	return int64(min(n, math.MaxInt64))
}
