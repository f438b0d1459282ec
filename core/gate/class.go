package gate

import "fmt"

// Class says how urgent work is. Higher classes are served first. The zero
// Class means untagged, which counts as [Default].
type Class uint8

// The classes, most urgent first.
const (
	Interactive Class = iota + 1 // a person is watching
	Default                      // untagged work
	Bulk                         // batches, sweeps, fan-outs
)

var classNames = [...]string{"default", "interactive", "default", "bulk"}

// ParseClass returns the class named s: "interactive", "default" or "bulk".
// Anything else, "" included, is an error; nothing is trimmed or folded.
func ParseClass(s string) (Class, error) {
	switch s {
	case "interactive":
		return Interactive, nil
	case "default":
		return Default, nil
	case "bulk":
		return Bulk, nil
	}
	return 0, fmt.Errorf("class %s: want interactive, default or bulk", quote(s))
}

// String returns the class's name; the zero Class reads "default".
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Valid reports whether c is one of the three classes or zero.
func (c Class) Valid() bool { return int(c) < len(classNames) }

// MarshalText returns the class's name. It is an error for an unknown class.
func (c Class) MarshalText() ([]byte, error) {
	if !c.Valid() {
		return nil, fmt.Errorf("class %d does not exist", uint8(c))
	}
	return []byte(c.String()), nil
}

// UnmarshalText sets c to the class that b names, or leaves it and returns
// [ParseClass]'s error.
func (c *Class) UnmarshalText(b []byte) error {
	v, err := ParseClass(string(b))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// quote bounds what an error repeats of its input.
func quote(s string) string {
	const most = 32
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
