package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// echoed is the body that POST /echo answers.
type echoed struct {
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func digest(body []byte) echoed {
	sum := sha256.Sum256(body)
	return echoed{Bytes: len(body), SHA256: hex.EncodeToString(sum[:])}
}

// maxHold bounds how long a client may ask to be held.
const maxHold = time.Hour

// parseHold reads the hold parameter; "" is none.
func parseHold(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxHold {
		return 0, fmt.Errorf("hold is %.40q: want a duration from 0s to %s, such as 2s", s, maxHold)
	}
	return d, nil
}

// hold waits for d, as for a slow back end, or until ctx ends, whose error it
// returns then. Where there is nothing to wait for it does not look at ctx: net/http
// ends it also when a client has only closed its sending side and reads on.
func hold(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
