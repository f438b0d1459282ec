package pressure

import "testing"

func TestSysctlSize(t *testing.T) {
	for raw, want := range map[string]int64{
		"\x00\x00\x00\x00\x04\x00\x00":     16 << 30, // the last zero byte is cut
		"\x00\x00\x00\x00\x04\x00\x00\x00": 16 << 30,
		"":                                 0,
		"\x00\x00\x00\x00\x00\x00\x00":     0,
		"\xff\xff\xff\xff\xff\xff\xff\xff": 0,
		"123456789":                        0,
	} {
		if got, err := sysctlSize(raw); got != want || (err == nil) != (want > 0) {
			t.Errorf("sysctlSize(%q) = %d, %v; want %d", raw, got, err, want)
		}
	}
}
