package admission

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/internal/waitq"
)

// zipped is n zeros in each of so many gzip members, one after the other.
func zipped(t testing.TB, members int, n int64) []byte {
	t.Helper()
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := io.CopyN(zw, zeros{}, n); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(out.Bytes(), members)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// counted counts the bytes that are taken from it. It is a ByteReader, so that
// compress/flate takes no more of it than it needs.
type counted struct {
	r     *bytes.Reader
	taken int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.taken += n
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.taken++
	}
	return b, err
}

// 130 KB that become 128 MiB: each of twenty in parallel stops at the cap, and
// what comes after it is not inflated to be thrown away.
func TestA24GzipBomb(t *testing.T) {
	var most int64 = 10 * mib
	if raceEnabled || testing.Short() {
		most = mib // inflating is slow there
	}
	bombs := map[string][]byte{
		"one member":   zipped(t, 1, 128*mib*most/(10*mib)),
		"many members": zipped(t, 64, 2*mib*most/(10*mib)),
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			b := budget(t, 32*mib, func(c *Config) { c.MaxDecodedBytes = gate.Size(most) })
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					src := &counted{r: bytes.NewReader(bomb)}
					zr, err := b.Gunzip(src)
					if err != nil {
						t.Error(err)
						return
					}
					defer zr.Close()
					n, err := io.Copy(io.Discard, zr)
					var r *gate.Rejection
					if !errors.As(err, &r) || r.Reason != gate.PayloadTooLarge || r.Status() != 413 || r.Limit != most {
						t.Errorf("%v, want payload_too_large for a limit of %d", err, most)
					}
					if n != most {
						t.Errorf("%d bytes came out, want %d", n, most)
					}
					// flate holds a window of 32 KiB; 1:1000 is the most that it packs.
					if want := (int(most)+64*kib)/1000 + len(bomb)/20; src.taken > want {
						t.Errorf("%d of %d compressed bytes taken, want at most %d", src.taken, len(bomb), want)
					}
					taken := src.taken
					for range 3 {
						if n, err := zr.Read(make([]byte, kib)); n != 0 || !errors.Is(err, gate.PayloadTooLarge) {
							t.Errorf("Read after the refusal = %d, %v", n, err)
						}
					}
					if src.taken != taken {
						t.Errorf("%d more bytes taken after the refusal", src.taken-taken)
					}
				})
			}
			wg.Wait()
			if s := b.Snapshot(); s.ShedReasons[gate.PayloadTooLarge] != 20 {
				t.Errorf("sheds %v, want 20", s.ShedReasons)
			}
		})
	}
}

// All decoded bytes together stay within their account of 8 times the budget.
func TestA24DecodedAccount(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.MaxDecodedBytes = 20 * mib })
	var others waitq.Lease
	if !b.decoded.TryAcquire(&others, light, 58*mib) { // of 64 MiB
		t.Fatal("no room in the account")
	}
	bomb := zipped(t, 5, mib)
	first, err := b.Gunzip(bytes.NewReader(bomb))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, first, 5*mib)
	if s := b.Snapshot(); s.DecodedBytes != 63*mib {
		t.Errorf("decoded_bytes = %d, want 63 MiB", s.DecodedBytes)
	}
	second, err := b.Gunzip(bytes.NewReader(bomb))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, second)
	r := refused(t, err, gate.AdmissionBusy)
	if n != mib || r.Limit != 64*mib || b.Snapshot().DecodedBytes != 64*mib {
		t.Errorf("read %d of an account of %d, %d charged, want the MiB that was left", n, r.Limit, b.Snapshot().DecodedBytes)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if s := b.Snapshot(); s.DecodedBytes != 63*mib {
		t.Errorf("decoded_bytes = %d after Close, want 63 MiB", s.DecodedBytes)
	}
	for range 2 { // once or more often
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	others.Release(others.Gen())
	if s := b.Snapshot(); s.InflightBytes != 0 {
		t.Errorf("inflight_bytes = %d: decoded bytes have an account of their own", s.InflightBytes)
	}
}

// The edge: exactly the cap is whole.
func TestA24ExactlyTheCap(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.MaxDecodedBytes = 3*quantum + 5 })
	for _, members := range [][]byte{
		zipped(t, 1, 3*quantum+5), append(zipped(t, 3, quantum), zipped(t, 1, 5)...),
	} {
		zr, err := b.Gunzip(bytes.NewReader(members))
		if err != nil {
			t.Fatal(err)
		}
		readAll(t, zr, 3*quantum+5)
		if err := zr.Close(); err != nil {
			t.Error(err)
		}
	}
	zr, err := b.Gunzip(bytes.NewReader(zipped(t, 1, 3*quantum+6)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, zr); !errors.Is(err, gate.PayloadTooLarge) {
		t.Errorf("a byte more: %v", err)
	}
	if err := zr.Close(); err != nil {
		t.Error(err)
	}
}

// Bad input has the errors of compress/gzip, and leaves nothing behind.
func TestGunzipBadInput(t *testing.T) {
	b := budget(t, 8*mib, nil)
	if _, err := b.Gunzip(bytes.NewReader([]byte("not a gzip at all"))); !errors.Is(err, gzip.ErrHeader) {
		t.Errorf("no gzip: %v, want %v", err, gzip.ErrHeader)
	}
	if _, err := b.Gunzip(bytes.NewReader(nil)); err != io.EOF {
		t.Errorf("empty: %v, want EOF", err)
	}
	whole := zipped(t, 1, mib)
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"truncated", whole[:len(whole)-9], io.ErrUnexpectedEOF},
		{"bad checksum", append(append([]byte{}, whole[:len(whole)-8]...), make([]byte, 8)...), gzip.ErrChecksum},
		{"rubbish behind", append(append([]byte{}, whole...), "rubbish behind it"...), gzip.ErrHeader},
	} {
		zr, err := b.Gunzip(bytes.NewReader(c.data))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := io.Copy(io.Discard, zr); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		_ = zr.Close() // compress/gzip gives the error again
	}
	if s := b.Snapshot(); s.Sheds != 0 {
		t.Errorf("sheds %v for bad input", s.ShedReasons)
	}
}

// The refusal of the body below passes through as it is.
func TestGunzipOverBody(t *testing.T) {
	b := budget(t, 8*mib, func(c *Config) { c.HardMaxBodyBytes = 64 * kib })
	noise := make([]byte, 200*kib)
	for i := range noise {
		noise[i] = byte(i * i >> 7)
	}
	var packed bytes.Buffer
	zw, err := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zw.Write(noise); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	l := admit(t, b, -1)
	zr, err := b.Gunzip(l.Body(io.NopCloser(&packed), nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, zr)
	refused(t, err, gate.PayloadTooLarge)
	_ = zr.Close() // compress/gzip gives the error again
	l.Release()
}

func TestGunzipAfterClose(t *testing.T) {
	b := budget(t, 8*mib, nil)
	packed := zipped(t, 1, mib)
	zr, err := b.Gunzip(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	readN(t, zr, kib)
	if err := zr.Close(); err != nil {
		t.Error(err)
	}
	if n, err := zr.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("Read after Close = %d, %v, want an error", n, err)
	}

	// A request that was admitted before Close finishes after it.
	l := admit(t, b, int64(len(packed)))
	b.Close()
	zr, err = b.Gunzip(l.Body(io.NopCloser(bytes.NewReader(packed)), nil))
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, zr, mib)
	if err := zr.Close(); err != nil {
		t.Error(err)
	}
	l.Release()
}

// Modes that do not enforce let everything through, and the account still balances.
func TestGunzipModes(t *testing.T) {
	for _, mode := range []gate.Mode{gate.Off, gate.Shadow} {
		b := budget(t, 8*mib, func(c *Config) { c.Mode, c.MaxDecodedBytes = mode, mib })
		for _, left := range []int64{64 * mib, mib, 0} { // room in the account
			var others waitq.Lease
			if !b.decoded.TryAcquire(&others, light, 64*mib-left) {
				t.Fatal("no room in the account")
			}
			zr, err := b.Gunzip(bytes.NewReader(zipped(t, 48, quantum)))
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, zr, 3*mib)
			if s := b.Snapshot(); s.Sheds != 0 || s.DecodedBytes > 64*mib {
				t.Errorf("%s: %d decoded, sheds %v", mode, s.DecodedBytes, s.ShedReasons)
			}
			if err := zr.Close(); err != nil {
				t.Error(err)
			}
			others.Release(others.Gen())
		}
	}
}

// K10: what an attack took is back when it is over, in the books and on the heap.
func TestK10MemoryComesBack(t *testing.T) {
	b := budget(t, 2*gib, nil)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	attack := func() {
		var stalled []gate.Lease
		var bodies []io.ReadCloser
		for range 2000 {
			l, err := b.Acquire(context.Background(), gate.Request{Bytes: mib})
			if err != nil {
				t.Fatal(err)
			}
			body, _ := under(l, 10)
			if _, err := body.Read(make([]byte, 4*kib)); err != nil {
				t.Fatal(err)
			}
			stalled, bodies = append(stalled, l), append(bodies, body)
		}
		for i, l := range stalled {
			_ = bodies[i].Close()
			l.Release()
		}
	}
	attack() // what is kept for later use is kept once
	before := heap()
	for range 5 {
		attack()
	}
	inflight(t, b, 0)
	if after := heap(); after > before+before/10+mib {
		t.Errorf("heap of %d bytes, %d before the attack", after, before)
	}
}
