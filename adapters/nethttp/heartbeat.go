package httpgate

import (
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gatehttp"
)

// Heartbeat calls next with a writer to use in place of w. Until next begins to answer, the
// client of this event stream gets a comment line every so often, so that nobody on the way
// takes the wait for a slot for a broken connection:
//
//	httpgate.Heartbeat(w, r, 15*time.Second, func(w http.ResponseWriter) {
//		resp, err := client.Do(call) // waits for a slot
//		if httpgate.Refuse(w, r, err) {
//			return
//		}
//		// ... send the stream on
//	})
//
// The first comment commits the answer: status 200 and text/event-stream. A refusal after
// it, and any other answer that is no event stream, arrives as the data of an event, which
// is named "error" where its status is 400 or above. Without a comment the answer is that of
// next, unchanged. every <= 0 sends none. See [gatehttp.Heartbeat] for what else it promises;
// a panic of next passes through.
func Heartbeat(w http.ResponseWriter, r *http.Request, every time.Duration, next func(w http.ResponseWriter)) {
	h := gatehttp.Heartbeat(w, r, every)
	defer h.Cut() // does nothing after Close
	next(h)
	h.Close()
}
