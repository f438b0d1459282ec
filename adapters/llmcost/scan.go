package llmcost

import (
	"io"

	"github.com/go-faster/jx"
)

const (
	maxDepth  = 128
	maxValues = 1 << 16
)

// scan is one pass over a body. Of each field it keeps the dearest that it has seen.
type scan struct {
	d      jx.Decoder
	values int // seen so far

	tokens    int64
	messages  int64
	system    int64 // 1 = there is a prompt beside the messages
	tools     int64
	declared  int64 // of the list of tools being read: functions beyond one for each tool
	inTool    int64 // functions of the tool being read
	functions int64
	n         int64
	stream    bool
	notStream bool // there is also a flag that can be read as no
}

// read reads the whole body.
func (s *scan) read(body []byte) error {
	s.d.ResetBytes(body)
	t, err := s.enter(0)
	switch {
	case err != nil:
		return err
	case t == jx.Object:
		err = s.object(0, (*scan).outerField)
	default:
		err = s.rest(t, 0)
	}
	if err != nil {
		return err
	}
	// Next tells the end from no other byte that begins no value; Skip does, but would
	// walk over a second value.
	if s.d.Next() != jx.Invalid || s.d.Skip() != io.EOF {
		return ErrNotJSON
	}
	return nil
}

// enter counts the value that comes next, inside of so many others, and returns its
// type. That every value is entered is what bounds a scan.
func (s *scan) enter(depth int) (jx.Type, error) {
	if s.values == maxValues {
		return jx.Invalid, errValues
	}
	s.values++
	t := s.d.Next()
	if depth >= maxDepth && (t == jx.Array || t == jx.Object) {
		return jx.Invalid, errDepth
	}
	return t, nil
}

// rest reads a value of type t, which has been entered, and looks for nothing in it.
func (s *scan) rest(t jx.Type, depth int) error {
	switch t {
	case jx.Object:
		return s.object(depth, (*scan).anyField)
	case jx.Array:
		_, err := s.array(depth, (*scan).rest)
		return err
	default:
		if s.d.Skip() != nil {
			return ErrNotJSON
		}
		return nil
	}
}

func (s *scan) anyField(_ []byte, t jx.Type, depth int) error { return s.rest(t, depth) }

// object reads an object. field reads the value of a key, which has been entered.
func (s *scan) object(depth int, field func(s *scan, key []byte, t jx.Type, depth int) error) error {
	it, err := s.d.ObjIter()
	if err != nil {
		return ErrNotJSON
	}
	for it.Next() {
		t, err := s.enter(depth + 1)
		if err != nil {
			return err
		}
		if err := field(s, it.Key(), t, depth+1); err != nil {
			return err
		}
	}
	if it.Err() != nil {
		return ErrNotJSON
	}
	return nil
}

// array reads an array and returns its length. item reads one, which has been entered.
func (s *scan) array(depth int, item func(s *scan, t jx.Type, depth int) error) (n int64, err error) {
	it, err := s.d.ArrIter()
	if err != nil {
		return 0, ErrNotJSON
	}
	for ; it.Next(); n++ {
		t, err := s.enter(depth + 1)
		if err != nil {
			return 0, err
		}
		if err := item(s, t, depth+1); err != nil {
			return 0, err
		}
	}
	if it.Err() != nil {
		return 0, ErrNotJSON
	}
	return n, nil
}
