package admission

import (
	"compress/gzip"
	"errors"
	"io"
	"math"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// Gunzip returns a reader of what body inflates to. Decoded bytes have an account
// of their own, 8 times the budget: they are charged by the block of 64 KiB, when
// its first byte comes out, and stay charged until Close, since whoever reads them
// most likely keeps them. A body that would exceed MaxDecodedBytes, all its members
// together, fails with payload_too_large, and one for which the account has no room
// with admission_busy; in both cases nothing more of it is inflated. In modes that
// do not enforce, neither limit holds; after Close of the budget, both still do.
// The error of a body that is no gzip is compress/gzip's own.
//
// The caller must close the reader, once or more often; that does not close body.
// Reading on after that is an error.
func (b *Budget) Gunzip(body io.Reader) (io.ReadCloser, error) {
	zr, err := gzip.NewReader(body)
	if err != nil {
		return nil, err
	}
	s := b.set.Load()
	g := &gunzip{b: b, zr: zr, left: math.MaxInt64, enforce: s.Mode == gate.Enforce}
	if g.enforce {
		g.left = int64(s.MaxDecodedBytes)
	}
	b.decoded.TryAcquire(&g.lease, light, 0)
	g.gen = g.lease.Gen()
	return g, nil
}

type gunzip struct {
	b       *Budget
	zr      *gzip.Reader
	lease   waitq.Lease
	gen     uint64
	covered int64 // charged and not inflated yet
	left    int64 // until the cap
	enforce bool
	err     error // sticky
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.err != nil || len(p) == 0 {
		return 0, g.err
	}
	if g.covered > 0 {
		n, err := g.zr.Read(p[:min(int64(len(p)), g.covered)])
		g.covered -= int64(n)
		g.left -= int64(n)
		return n, g.end(err)
	}
	// The end takes no room: one byte is inflated first and charged afterwards.
	n, err := g.zr.Read(p[:1])
	if n > 0 {
		if over := g.cover(); over != nil {
			return 0, over
		}
		g.covered--
		g.left--
	}
	return n, g.end(err)
}

// cover charges for the next block.
func (g *gunzip) cover() error {
	if g.left == 0 {
		return g.fail(gate.PayloadTooLarge, int64(g.b.set.Load().MaxDecodedBytes))
	}
	block := min(quantum, g.left)
	if !g.lease.Grow(g.gen, block) && g.enforce {
		return g.fail(gate.AdmissionBusy, g.b.set.Load().limit*amplification)
	}
	g.covered = block
	return nil
}

func (g *gunzip) end(err error) error {
	g.err = err
	return err
}

func (g *gunzip) fail(r gate.Reason, limit int64) error {
	rej := &gate.Rejection{
		Reason: r, Gate: name, Limit: limit, Unit: "decoded bytes",
		Advice: "send less compressed data, or raise MaxDecodedBytes or MaxInflightBytes",
	}
	if r == gate.AdmissionBusy {
		rej.RetryAfter = g.b.retryAfter(heavy, 0, 0)
	}
	return g.end(g.b.shed(rej, quantum))
}

// Close gives back what is charged. It does not close the body below.
func (g *gunzip) Close() error {
	if g.err == nil {
		g.err = errors.New("admission: read of a closed gunzip reader")
	}
	g.lease.Release(g.gen)
	return g.zr.Close()
}
