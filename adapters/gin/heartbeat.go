package gingate

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate-go/headgate/core/gatehttp"
)

// Heartbeat calls next, which is a handler's answer of an event stream. Until it begins to
// answer, the client gets a comment line every so often, so that nobody on the way takes the
// wait for a slot for a broken connection:
//
//	gingate.Heartbeat(c, 15*time.Second, func() {
//		resp, err := client.Do(call) // waits for a slot
//		if gingate.Refuse(c, err) {
//			return
//		}
//		// ... send the stream on
//	})
//
// The first comment commits the answer: status 200 and text/event-stream. A refusal after
// it, and any other answer that is no event stream, arrives as the data of an event, which
// is named "error" where its status is 400 or above. Without a comment the answer is that of
// next, unchanged. every <= 0 sends none. c.Writer is another while next runs. See
// [gatehttp.Heartbeat] for what else it promises; a panic of next passes through.
func Heartbeat(c *gin.Context, every time.Duration, next func()) {
	under := c.Writer
	w := &beating{ResponseWriter: under, status: under.Status(), size: under.Size()}
	w.heart = gatehttp.Heartbeat(under, c.Request, every) // from now on the comments use the writer below
	c.Writer = w
	defer func() {
		c.Writer = under
		if !w.heart.Stop() && !w.wrote {
			under.WriteHeader(w.status) // Gin sends it in the end
		}
		w.heart.Cut() // does nothing after Close
	}()
	next()
	if w.heart.Stop() {
		w.WriteHeaderNow() // as Gin does in the end
	}
	w.heart.Close()
}

// beating is Gin's writer above a heart: the handler's status and size are its own, while
// the comments go by way of the writer below.
type beating struct {
	gin.ResponseWriter
	heart  *gatehttp.Heart
	status int
	size   int // -1 = nothing written, as Gin counts
	wrote  bool
}

func (w *beating) Header() http.Header         { return w.heart.Header() }
func (w *beating) Unwrap() http.ResponseWriter { return w.heart }
func (w *beating) Status() int                 { return w.status }
func (w *beating) Size() int                   { return w.size }
func (w *beating) Written() bool               { return w.wrote }

// WriteHeader keeps the status back, as Gin's own does.
func (w *beating) WriteHeader(status int) {
	if status > 0 && !w.wrote {
		w.status = status
	}
}

func (w *beating) WriteHeaderNow() {
	if w.wrote {
		return
	}
	w.wrote, w.size = true, 0
	w.heart.WriteHeader(w.status) // the last comment is before it
	w.ResponseWriter.WriteHeaderNow()
}

func (w *beating) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.heart.Write(p)
	w.size += n
	return n, err
}

func (w *beating) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.heart, s)
	w.size += n
	return n, err
}

// Hijack ends the comments, and has the answer be over, as Gin's own does.
func (w *beating) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.heart.Hijack()
	if err == nil {
		w.wrote, w.size = true, max(w.size, 0)
	}
	return conn, rw, err
}

func (w *beating) Flush() {
	w.WriteHeaderNow()
	w.heart.Flush()
}
