package gate

import "fmt"

// Mode says what a gate does with what it decides. The zero Mode is not set
// and every gate refuses it as a configuration error.
type Mode uint8

// The modes.
const (
	Off     Mode = iota + 1 // admits all, decides nothing
	Shadow                  // admits all, counts what Enforce would have done
	Enforce                 // admits, queues and refuses
)

var modeNames = [...]string{"unset", "off", "shadow", "enforce"}

// String returns the mode's name, "unset" for the zero Mode.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Valid reports whether m is one of the three modes.
func (m Mode) Valid() bool { return m >= Off && m <= Enforce }

// MarshalText returns the mode's name. It is an error for an unset or unknown mode.
func (m Mode) MarshalText() ([]byte, error) {
	if !m.Valid() {
		return nil, fmt.Errorf("mode %d does not exist", uint8(m))
	}
	return []byte(m.String()), nil
}

// UnmarshalText sets m to the mode that b names ("off", "shadow", "enforce"),
// or leaves it and returns an error.
func (m *Mode) UnmarshalText(b []byte) error {
	switch string(b) {
	case "off":
		*m = Off
	case "shadow":
		*m = Shadow
	case "enforce":
		*m = Enforce
	default:
		return fmt.Errorf("mode %s: want off, shadow or enforce", quote(string(b)))
	}
	return nil
}
