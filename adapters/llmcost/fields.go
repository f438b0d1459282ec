package llmcost

import (
	"math"

	"github.com/go-faster/jx"
)

// outerField reads a field of the body.
func (s *scan) outerField(key []byte, t jx.Type, depth int) error {
	var buf [maxName]byte
	if t == jx.Object && string(fold(key, &buf)) == "request" {
		return s.object(depth, (*scan).field)
	}
	return s.field(key, t, depth)
}

// field reads a field of the body, or of the request that it wraps.
func (s *scan) field(key []byte, t jx.Type, depth int) error {
	var buf [maxName]byte
	name := fold(key, &buf)
	switch string(name) {
	case "messages", "input", "contents":
		return s.list(&s.messages, t, depth, (*scan).rest)
	case "system", "instructions", "systeminstruction":
		if t != jx.Null {
			s.system = 1
		}
		return s.rest(t, depth)
	case "tools":
		return s.toolList(t, depth)
	case "functions":
		return s.list(&s.functions, t, depth, (*scan).rest)
	case "stream":
		return s.flag(string(key) == "stream", t, depth)
	case "generationconfig":
		if t == jx.Object {
			return s.object(depth, (*scan).setting)
		}
		return s.rest(t, depth)
	default:
		return s.numbers(name, t, depth)
	}
}

// setting reads a field of Gemini's generationConfig.
func (s *scan) setting(key []byte, t jx.Type, depth int) error {
	var buf [maxName]byte
	return s.numbers(fold(key, &buf), t, depth)
}

// numbers reads a field that may be one of the numbers.
func (s *scan) numbers(name []byte, t jx.Type, depth int) error {
	switch string(name) {
	case "maxtokens", "maxcompletiontokens", "maxoutputtokens":
		return s.number(&s.tokens, t, depth)
	case "n", "candidatecount":
		return s.number(&s.n, t, depth)
	default:
		return s.rest(t, depth)
	}
}

// list raises *most to the length of a list. null has none, and whatever else stands in
// its place counts as one.
func (s *scan) list(most *int64, t jx.Type, depth int, item func(s *scan, t jx.Type, depth int) error) (err error) {
	n := int64(1)
	switch t {
	case jx.Array:
		n, err = s.array(depth, item)
	case jx.Null:
		n, err = 0, s.rest(t, depth)
	default:
		err = item(s, t, depth)
	}
	*most = max(*most, n)
	return err
}

// toolList reads a list of tools.
func (s *scan) toolList(t jx.Type, depth int) error {
	n := int64(0)
	s.declared = 0
	err := s.list(&n, t, depth, (*scan).tool)
	s.tools = max(s.tools, n+s.declared)
	return err
}

// tool reads a tool, which in Gemini's shape may be many functions.
func (s *scan) tool(t jx.Type, depth int) error {
	if t != jx.Object {
		return s.rest(t, depth)
	}
	s.inTool = 1
	err := s.object(depth, (*scan).toolField)
	s.declared += s.inTool - 1
	return err
}

func (s *scan) toolField(key []byte, t jx.Type, depth int) error {
	var buf [maxName]byte
	if string(fold(key, &buf)) == "functiondeclarations" {
		return s.list(&s.inTool, t, depth, (*scan).rest)
	}
	return s.rest(t, depth)
}

// flag reads whether a stream is asked for. Since a stream is the cheaper, it is one
// only where nobody can read it otherwise.
func (s *scan) flag(exact bool, t jx.Type, depth int) error {
	if t != jx.Bool {
		s.notStream = true
		return s.rest(t, depth)
	}
	yes, err := s.d.Bool()
	if err != nil {
		return ErrNotJSON
	}
	s.stream = s.stream || yes && exact
	s.notStream = s.notStream || !yes
	return nil
}

// number raises *most to a number, which may be written as a string. null is none, and
// whatever else stands in its place counts as the largest there is.
func (s *scan) number(most *int64, t jx.Type, depth int) error {
	n := int64(math.MaxInt64)
	switch t {
	case jx.Number, jx.String:
		raw, err := s.d.Raw()
		if err != nil {
			return ErrNotJSON
		}
		n = parse(raw)
	case jx.Null:
		n = 0
		fallthrough
	default:
		if err := s.rest(t, depth); err != nil {
			return err
		}
	}
	*most = max(*most, n)
	return nil
}
