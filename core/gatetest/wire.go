package gatetest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// countingListener counts what its connections carry.
type countingListener struct {
	net.Listener
	moves   *atomic.Int64 // of the case's guard
	in, out atomic.Int64  // bytes, as the server has read and written them
	open    atomic.Int64  // connections
	stuck   atomic.Int64  // reads that ran into a deadline before anything was answered
	conns   sync.Map      // *countingConn by the client's address
}

// Accept implements net.Listener.
func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("gatetest: accepted a %T", c)
	}
	l.open.Add(1)
	l.moves.Add(1)
	conn := &countingConn{TCPConn: tcp, l: l}
	l.conns.Store(tcp.RemoteAddr().String(), conn)
	return conn, nil
}

// isOpen reports whether the server has a connection with the client at addr.
func (l *countingListener) isOpen(addr string) bool {
	c, ok := l.conns.Load(addr)
	return ok && c.(*countingConn).closed.Load() == 0
}

// waited reports whether the server has let a client at addr time to read what it had
// written, before it closed the connection: net/http gives it 500 ms.
func (l *countingListener) waited(addr string) bool {
	v, ok := l.conns.Load(addr)
	if !ok {
		return false
	}
	c := v.(*countingConn)
	wrote := c.wrote.Load()
	return wrote != 0 && time.Duration(c.closed.Load()-wrote) >= 400*time.Millisecond
}

// countingConn stays a TCP connection: servers look for one to close it half.
type countingConn struct {
	*net.TCPConn
	l             *countingListener
	once          sync.Once
	wrote, closed atomic.Int64 // when, last; 0 = not yet
}

// Read implements net.Conn.
func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.wrote.Load() == 0 {
		c.l.stuck.Add(1)
	}
	c.l.in.Add(int64(n))
	c.l.moves.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.wrote.Store(time.Now().UnixNano())
	c.l.out.Add(int64(n))
	c.l.moves.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *countingConn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		c.closed.Store(time.Now().UnixNano())
		c.l.open.Add(-1)
	})
	return err
}

// identity is a certificate for loopback, made for one run.
type identity struct {
	cert tls.Certificate
	pool *x509.CertPool
}

func newIdentity() *identity {
	must := func(err error) {
		if err != nil {
			panic("gatetest: no certificate: " + err.Error())
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gatetest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	leaf, err := x509.ParseCertificate(der)
	must(err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool}
}

func (i *identity) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{i.cert}, MinVersion: tls.VersionTLS12}
}

func (i *identity) client() *tls.Config {
	return &tls.Config{RootCAs: i.pool, MinVersion: tls.VersionTLS12}
}

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the log so far.
func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *safeBuffer) logger() *log.Logger { return log.New(b, "", 0) }
