// Package fast puts fasthttp requests to a gate, for package fibergate as for prebody:
// the asking, when a response is finished, and how a connection ends on which a client
// may still be sending.
package fast

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/headgate-go/headgate/core/gate"
)

// Unmatched is the route of a request whose pattern is not known.
const Unmatched = "unmatched"

// Ask puts q to g. A server that is shut down ends the wait.
func Ask(ctx context.Context, rc *fasthttp.RequestCtx, g gate.Gate, q gate.Request) (gate.Lease, error) {
	wait, done := ctx, shutdown(rc) //nolint:contextcheck // the server's end is another's
	if done != nil {
		if ctx.Done() == nil {
			wait = &waiting{ctx, done}
		} else {
			both, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { // ends with the wait
				select {
				case <-done:
					cancel()
				case <-both.Done():
				}
			}()
			wait = both
		}
	}
	lease, err := g.Acquire(wait, q)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return gate.Lease{}, stopped(err)
	}
	return lease, err
}

// waiting is a request's context that ends with its server.
type waiting struct {
	context.Context
	done <-chan struct{}
}

// Done is closed when the server is shut down.
func (w *waiting) Done() <-chan struct{} { return w.done }

// Err is context.Canceled then.
func (w *waiting) Err() error {
	select {
	case <-w.done:
		return context.Canceled
	default:
		return nil
	}
}

// shutdown is closed when the server of rc is shut down; nil where nobody tells. A
// RequestCtx without a connection, as unit tests make it, has no server.
func shutdown(rc *fasthttp.RequestCtx) <-chan struct{} {
	if rc.Conn() == nil {
		return nil
	}
	return rc.Done()
}

// stopped is the refusal of a request whose server was shut down while it waited.
func stopped(err error) error {
	var rej *gate.Rejection
	if !errors.As(err, &rej) || rej.Reason != gate.Canceled {
		return err
	}
	down := *rej
	down.Reason, down.Cause = gate.ShuttingDown, nil
	return &down
}

// Peer is the flow of rc's peer.
func Peer(rc *fasthttp.RequestCtx) string {
	a := rc.RemoteAddr()
	if tcp, ok := a.(*net.TCPAddr); ok {
		return gate.PeerFlow(tcp.AddrPort().Addr().Unmap().String())
	}
	return gate.PeerFlow(a.String())
}

// Waited is how long a request stood in the queue, whatever came of it.
func Waited(l gate.Lease, err error) time.Duration {
	if err == nil {
		return l.Waited()
	}
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
		return rej.Waited
	}
	return 0
}

// Method bounds what a client can make of the method.
func Method(rc *fasthttp.RequestCtx) string {
	switch string(rc.Method()) {
	case fasthttp.MethodGet:
		return fasthttp.MethodGet
	case fasthttp.MethodHead:
		return fasthttp.MethodHead
	case fasthttp.MethodPost:
		return fasthttp.MethodPost
	case fasthttp.MethodPut:
		return fasthttp.MethodPut
	case fasthttp.MethodPatch:
		return fasthttp.MethodPatch
	case fasthttp.MethodDelete:
		return fasthttp.MethodDelete
	case fasthttp.MethodConnect:
		return fasthttp.MethodConnect
	case fasthttp.MethodOptions:
		return fasthttp.MethodOptions
	case fasthttp.MethodTrace:
		return fasthttp.MethodTrace
	}
	return "other"
}
