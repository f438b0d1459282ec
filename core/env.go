package headgate

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// ConfigFromEnv returns c with what the environment sets. getenv is os.Getenv, or
// stands for it; a variable that is "" is not set. The error names the variable
// and its value, of which it repeats 40 characters at most; a c that is out of
// range to begin with is Validate's error. On an error c is returned unchanged.
// Durations are in Go's syntax ("1m30s"), sizes in bytes or with a unit ("64MiB"),
// and -1 is Auto where the field knows it.
//
//	HEADGATE_MAX_INFLIGHT_BYTES           Admission.MaxInflightBytes
//	HEADGATE_MAX_HEAVY_IN_FLIGHT          Admission.MaxHeavyInFlight
//	HEADGATE_ADMISSION_QUEUE_TIMEOUT      Admission.QueueTimeout
//	HEADGATE_ADMISSION_MAX_QUEUED_BYTES   Admission.MaxQueuedBytes
//	HEADGATE_HEAVY_BYTES                  Admission.HeavyBytes
//	HEADGATE_HARD_MAX_BODY_BYTES          Admission.HardMaxBodyBytes
//	HEADGATE_HEALTHY_HEADROOM             Admission.HealthyHeadroom
//	HEADGATE_HEAP_SHED_RATIO              Admission.HeapShedRatio
//	HEADGATE_MAX_INFLIGHT                 Inflight.MaxInflight
//	HEADGATE_INFLIGHT_QUEUE_TIMEOUT       Inflight.QueueTimeout
//	HEADGATE_INFLIGHT_INTERACTIVE_RESERVE Inflight.InteractiveReserve
func ConfigFromEnv(c Config, getenv func(string) string) (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err // no variable is to blame
	}
	next := c
	a, i := &next.Admission, &next.Inflight
	for _, v := range []struct {
		name string
		into any
	}{
		{"HEADGATE_MAX_INFLIGHT_BYTES", &a.MaxInflightBytes},
		{"HEADGATE_MAX_HEAVY_IN_FLIGHT", &a.MaxHeavyInFlight},
		{"HEADGATE_ADMISSION_QUEUE_TIMEOUT", &a.QueueTimeout},
		{"HEADGATE_ADMISSION_MAX_QUEUED_BYTES", &a.MaxQueuedBytes},
		{"HEADGATE_HEAVY_BYTES", &a.HeavyBytes},
		{"HEADGATE_HARD_MAX_BODY_BYTES", &a.HardMaxBodyBytes},
		{"HEADGATE_HEALTHY_HEADROOM", &a.HealthyHeadroom},
		{"HEADGATE_HEAP_SHED_RATIO", &a.HeapShedRatio},
		{"HEADGATE_MAX_INFLIGHT", &i.MaxInflight},
		{"HEADGATE_INFLIGHT_QUEUE_TIMEOUT", &i.QueueTimeout},
		{"HEADGATE_INFLIGHT_INTERACTIVE_RESERVE", &i.InteractiveReserve},
	} {
		s := getenv(v.name)
		if s == "" {
			continue
		}
		if err := parse(s, v.into); err != nil {
			return c, fmt.Errorf("%s is %.40q: %w", v.name, s, err)
		}
		if err := next.Validate(); err != nil {
			return c, fmt.Errorf("%s is %.40q: %w", v.name, s, err)
		}
	}
	return next, nil
}

// parse sets into from s. Its errors do not repeat s, which may be long.
func parse(s string, into any) error {
	var err error
	switch p := into.(type) {
	case *gate.Size:
		if p.UnmarshalText([]byte(s)) != nil {
			err = errors.New("want a whole number of bytes that fits in 64 bits, or one with a unit such as 64MiB")
		}
	case *time.Duration:
		if *p, err = time.ParseDuration(s); err != nil {
			err = errors.New("want a duration such as 1m30s")
		}
	case *int:
		if *p, err = strconv.Atoi(s); err != nil {
			err = errors.New("want a whole number")
		}
	case *float64:
		if *p, err = strconv.ParseFloat(s, 64); err != nil {
			err = errors.New("want a number")
		}
	}
	return err
}
