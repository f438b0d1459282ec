package clientwrap

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/headgate-go/headgate/core/gate"
)

// body is the body of a response, and holds a slot until it is over.
type body struct {
	t     *Transport
	inner io.ReadCloser
	lease gate.Lease
	stop  func() bool // ends the watch over the context; nil = there is none
	hold  *hold       // nil without MaxHold
	state atomic.Uint32
}

// The states of a body. It leaves bodyOpen once.
const (
	bodyOpen  uint32 = iota
	bodyOver         // at its end, failed or closed
	bodyEnded        // its context has ended, and nobody has seen the end of the body yet
	bodyCut          // MaxHold has ended it, and nobody has closed it yet
)

// Read reads on. Whatever ends it gives the slot back, a panic too.
func (b *body) Read(p []byte) (n int, err error) {
	if b.wasCut() {
		return 0, b.hold.rej
	}
	returned := false
	defer func() {
		if returned && err == nil {
			return
		}
		b.finish()
		if returned && b.wasCut() {
			err = b.hold.rej
		}
	}()
	n, err = b.inner.Read(p)
	returned = true
	return n, err
}

// Close closes the base's body, then gives the slot back.
func (b *body) Close() error {
	defer b.over()
	return b.inner.Close()
}

// finish gives the slot back, if the body has it.
func (b *body) finish() {
	switch {
	case b.state.CompareAndSwap(bodyOpen, bodyOver):
		b.lease.Release()
		b.unwatch()
	case b.state.CompareAndSwap(bodyEnded, bodyOver):
		b.t.unclosed.Add(-1)
	}
}

// over is finish for who will not read again.
func (b *body) over() {
	b.finish()
	if b.hold != nil && b.state.CompareAndSwap(bodyCut, bodyOver) {
		b.t.unclosed.Add(-1)
		b.unwatch()
	}
}

// expire gives the slot back when the context has ended.
func (b *body) expire() {
	if !b.state.CompareAndSwap(bodyOpen, bodyEnded) {
		return
	}
	b.t.unclosed.Add(1)
	b.lease.Release()
	if b.hold != nil {
		b.hold.end()
	}
}

// watchContext has the end of the request's context give the slot back, and that of
// its Cancel channel. It watches the context of what was sent: the cut of MaxHold ends
// that one, and so the watch of a body that nobody will ever close.
func (b *body) watchContext(req, sent *http.Request) {
	switch canceled := cancelOf(req); {
	case canceled != nil:
		b.stop = afterEither(sent.Context().Done(), canceled, b.expire)
	case req.Context().Done() != nil:
		b.stop = context.AfterFunc(sent.Context(), b.expire)
	}
}

// unwatch ends what watches the exchange. Only whoever has the response calls it.
func (b *body) unwatch() {
	if b.stop != nil {
		b.stop()
	}
	if b.hold != nil {
		b.hold.end()
	}
}

// as returns b with the methods that the base's body has.
func (b *body) as() io.ReadCloser {
	if _, writes := b.inner.(io.Writer); !writes {
		return b
	}
	if _, halves := b.inner.(closeWriter); halves {
		return halfDuplex{duplex{b}}
	}
	return duplex{b}
}

type closeWriter interface{ CloseWrite() error }

// duplex is a body that can be written to.
type duplex struct{ *body }

// Write writes to the base's body.
func (d duplex) Write(p []byte) (int, error) {
	n, err := d.inner.(io.Writer).Write(p) //nolint:errcheck // as has looked
	if err != nil && d.wasCut() {
		err = d.hold.rej
	}
	return n, err
}

// halfDuplex is a duplex whose one side can be closed.
type halfDuplex struct{ duplex }

// CloseWrite closes the writing side of the base's body.
func (h halfDuplex) CloseWrite() error {
	return h.inner.(closeWriter).CloseWrite() //nolint:errcheck // as has looked
}
