package admission

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/headgate-go/headgate/core/gate"
)

// Whatever the cap is, under or over the steps in which a body of unknown length
// is charged, it is what a reader gets at most, and all that was charged comes back.
func TestCapOfUnknownLength(t *testing.T) {
	for _, most := range []int64{1, 1000, quantum - 1, quantum, quantum + 1, 3*quantum + 7} {
		b := budget(t, 8*mib, func(c *Config) { c.HardMaxBodyBytes = gate.Size(most) })
		for _, size := range []int64{0, 1, most - 1, most, most + 1, most + quantum, 5 * quantum} {
			for _, shape := range []func(io.Reader) io.Reader{
				func(r io.Reader) io.Reader { return r }, iotest.DataErrReader, iotest.HalfReader,
			} {
				l := admit(t, b, -1)
				got, err := io.ReadAll(l.Body(io.NopCloser(shape(bytes.NewReader(make([]byte, size)))), nil))
				if int64(len(got)) != min(size, most) || errors.Is(err, gate.PayloadTooLarge) != (size > most) {
					t.Errorf("%d bytes under a cap of %d: read %d, error %v", size, most, len(got), err)
				}
				if in := b.Snapshot().InflightBytes; in != int64(len(got)) {
					t.Errorf("%d bytes under a cap of %d: %d in flight", size, most, in)
				}
				l.Release()
			}
		}
	}
}
