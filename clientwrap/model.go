package clientwrap

import (
	"encoding/json"
	"io"
)

const (
	chunk    = 4 << 10
	maxKey   = 64  // of a key, as written; "model" in escapes takes 30
	maxModel = 512 // of a model, as written
)

// readModel returns the model that the JSON of r names, "" if none is found in its
// first most bytes, and the error of the last Read, nil if r has more. It reads little
// more than it needs.
func readModel(r io.Reader, most int) (model string, err error) {
	var s modelScan
	buf := make([]byte, min(chunk, most))
	for most > 0 && err == nil && !s.done {
		var n int
		n, err = r.Read(buf[:min(len(buf), most)])
		most -= n
		s.feed(buf[:n])
	}
	return s.model, err
}

// modelScan finds the first string under the key "model" of the outermost object, in
// JSON that comes in pieces. It does not check the JSON: what is none names no model,
// or any.
type modelScan struct {
	done  bool
	model string

	depth   int
	next    part // of the outermost object
	quoted  bool // inside a string
	escaped bool // after a backslash
	keep    int  // how much of this string to keep; 0 = nothing
	text    []byte
	named   bool // the present key is "model"
}

type part uint8

const (
	key   part = iota // or the end
	colon             // after a key
	value             // after a colon
	comma             // after a value
)

func (s *modelScan) feed(p []byte) {
	for _, c := range p {
		switch {
		case s.done:
			return
		case s.quoted:
			s.inString(c)
		default:
			s.between(c)
		}
	}
}

// inString takes a byte of a string.
func (s *modelScan) inString(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.quoted = false
		s.endString()
		return
	}
	if s.keep > 0 {
		s.text = append(s.text, c)
		if s.keep--; s.keep == 0 {
			s.done = s.next == value // a model that long is on no list
			s.text = s.text[:0]
		}
	}
}

// endString looks at a whole string, which is kept if it matters.
func (s *modelScan) endString() {
	if s.depth != 1 {
		return
	}
	switch s.next {
	case key:
		s.named, s.next = s.keep > 0 && unquote(s.text) == "model", colon
	case value:
		if s.named {
			s.model, s.done = unquote(s.text), true
		}
		s.next = comma
	case colon, comma: // not JSON
		s.done = true
	}
}

// between takes a byte outside of strings.
func (s *modelScan) between(c byte) {
	switch c {
	case ' ', '\t', '\r', '\n':
	case '"':
		s.quoted, s.keep, s.text = true, 0, s.text[:0]
		switch {
		case s.depth == 0: // a lone string
			s.done = true
		case s.depth == 1 && s.next == key:
			s.keep = maxKey
		case s.depth == 1 && s.next == value && s.named:
			s.keep = maxModel
		}
	case '{', '[':
		s.down(c)
	case '}', ']':
		if s.depth--; s.depth <= 0 {
			s.done = true
		}
		s.next = comma
	case ':':
		if s.depth == 1 && s.next == colon {
			s.next = value
		}
	case ',':
		if s.depth == 1 {
			s.next = key
		}
	default: // a number or a word
		s.scalar()
	}
}

// down enters an object or a list.
func (s *modelScan) down(c byte) {
	switch s.depth {
	case 0:
		s.done = c != '{'
		s.next = key
	case 1:
		s.scalar()
	}
	s.depth++
}

// scalar takes a value that is no string.
func (s *modelScan) scalar() {
	if s.depth == 0 || s.depth == 1 && s.named && s.next == value {
		s.done = true
	}
}

// unquote returns the string that text is in JSON, "" if it is none.
func unquote(text []byte) string {
	for _, c := range text {
		if c == '\\' {
			var s string
			if json.Unmarshal([]byte(`"`+string(text)+`"`), &s) != nil {
				return ""
			}
			return s
		}
	}
	return string(text)
}
