package echogate

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate-go/headgate/core/gatehttp"
)

// Heartbeat calls next, which is a handler's answer of an event stream. Until it begins to
// answer, the client gets a comment line every so often, so that nobody on the way takes the
// wait for a slot for a broken connection:
//
//	return echogate.Heartbeat(c, 15*time.Second, func() error {
//		resp, err := client.Do(call) // waits for a slot
//		if err != nil {
//			return err
//		}
//		// ... send the stream on
//	})
//
// The first comment commits the answer: status 200 and text/event-stream. A refusal after
// it, and any other answer that is no event stream, arrives as the data of an event, which
// is named "error" where its status is 400 or above; an error that next returns is put to
// the app's error handler at once then, and Heartbeat returns nil. Without a comment the answer
// and the error are those of next, unchanged. every <= 0 sends none. See
// [gatehttp.Heartbeat] for what else it promises; a panic of next passes through.
func Heartbeat(c echo.Context, every time.Duration, next func() error) error {
	res := c.Response()
	under := res.Writer
	h := gatehttp.Heartbeat(under, c.Request(), every)
	res.Writer = h
	defer func() {
		if h.Stop() {
			res.Committed = true // whoever comes next must not begin another answer
		}
		h.Cut() // does nothing after Close
		res.Writer = under
	}()
	err := next()
	if h.Stop() && err != nil {
		c.Error(answerable(c, err))
		if !res.Committed {
			return nil // nobody has answered it: Cut tells
		}
		err = nil
	}
	h.Close()
	return err
}
