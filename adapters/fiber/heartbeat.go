package fibergate

import (
	"bufio"
	"sync"
	"time"
)

// Heartbeat calls wait in the writer of an event stream. Until it returns, the client gets a
// comment line every so often, so that nobody on the way takes the wait for a slot for a
// broken connection:
//
//	c.Set(fiber.HeaderContentType, "text/event-stream")
//	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
//		var resp *http.Response
//		err := fibergate.Heartbeat(w, 15*time.Second, func() (err error) {
//			resp, err = client.Do(call) // waits for a slot
//			return err
//		})
//		// ... send the stream on, or err in an event: the status has been sent
//	})
//
// The error is that of wait. wait must not write to w, which is the caller's again
// afterwards. every <= 0 sends no comment, and the first that cannot be sent is the last. A
// panic of wait passes through. The server's WriteTimeout is of the whole answer here, the
// wait included; comments do not move it.
func Heartbeat(w *bufio.Writer, every time.Duration, wait func() error) error {
	if every <= 0 {
		return wait()
	}
	var mu sync.Mutex // held while w is written to
	over := false
	var timer *time.Timer
	beat := func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		_, err := w.WriteString(": queued\n") // see gatehttp: no empty line
		if err == nil {
			err = w.Flush()
		}
		if over = err != nil; !over {
			timer.Reset(every)
		}
	}
	mu.Lock() // beat reads timer
	timer = time.AfterFunc(every, beat)
	mu.Unlock()
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}()
	return wait()
}
