package gate

import (
	"math"
	"testing"
	"time"
)

func TestServerTiming(t *testing.T) {
	for waited, want := range map[time.Duration]string{
		0:                                    "queue;dur=0",
		-time.Second:                         "queue;dur=0",
		499 * time.Nanosecond:                "queue;dur=0",
		time.Microsecond:                     "queue;dur=0.001",
		1500 * time.Microsecond:              "queue;dur=1.5",
		12*time.Second + 34*time.Microsecond: "queue;dur=12000.034",
		math.MaxInt64:                        "queue;dur=9223372036854.775",
	} {
		if got := ServerTiming(waited); got != want {
			t.Errorf("%v: got %s, want %s", waited, got, want)
		}
	}
}
