package pressure

import "fmt"

// Severity is how close the process is to its memory limit. Severities are ordered:
// Normal < High < Critical. The zero Severity is Normal.
type Severity uint8

// The severities.
const (
	Normal Severity = iota
	High
	Critical
)

// String returns "normal", "high" or "critical".
func (s Severity) String() string {
	switch s {
	case Normal:
		return "normal"
	case High:
		return "high"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// MarshalText returns String's form.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s from "normal", "high" or "critical".
func (s *Severity) UnmarshalText(b []byte) error {
	for _, known := range []Severity{Normal, High, Critical} {
		if string(b) == known.String() {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("severity %.40q: want normal, high or critical", b)
}
