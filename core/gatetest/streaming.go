package gatetest

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
)

// stream sends an event whenever the case says so, until the case lets it go, the
// client is gone or a write fails.
func (c *script) stream(x Exchange) error {
	done := x.Context().Done() // the exchange may be over when the stream begins
	x.Stream("text/event-stream", func(w io.Writer, flush func() error) {
		for {
			select {
			case s := <-c.events:
				if _, err := io.WriteString(w, "data: "+s+"\n\n"); err != nil {
					return
				}
				if flush() != nil {
					return
				}
			case <-c.letGo:
				return
			case <-done:
				return
			}
		}
	})
	return nil
}

func (c *script) flood(x Exchange) error {
	x.Stream("application/octet-stream", func(w io.Writer, flush func() error) {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			if flush() != nil {
				return
			}
			select {
			case <-c.letGo:
				return
			default:
			}
		}
	})
	return nil
}

// socket is a websocket that sends back each message; with the argument "early" it
// has released its lease first.
func (c *script) socket(x Exchange) error {
	if !strings.EqualFold(x.Header("Upgrade"), "websocket") {
		x.Reply(http.StatusBadRequest, "")
		return nil
	}
	if x.Header(argHeader) == "early" {
		x.Release(c.gate)
	}
	return x.Upgrade(map[string]string{
		"Upgrade": "websocket", "Connection": "Upgrade",
		"Sec-WebSocket-Accept": socketAccept(x.Header("Sec-WebSocket-Key")),
	}, func(rw io.ReadWriter) {
		r := bufio.NewReader(rw)
		for {
			message, err := readFrame(r)
			if err != nil {
				return
			}
			if _, err := rw.Write(frame(message, nil)); err != nil {
				return
			}
		}
	})
}

// socketAccept answers a handshake, RFC 6455 section 4.2.2.
func socketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// frame is a text message of less than 126 bytes. A client masks it.
func frame(message string, mask []byte) []byte {
	head := []byte{0x81, byte(len(message))}
	if mask != nil {
		head[1] |= 0x80
		head = append(head, mask...)
	}
	return append(head, masked([]byte(message), mask)...)
}

// readFrame reads a frame of that kind, masked or not. A close frame is io.EOF.
func readFrame(r *bufio.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	var mask []byte
	if head[1]&0x80 != 0 {
		mask = make([]byte, 4)
		if _, err := io.ReadFull(r, mask); err != nil {
			return "", err
		}
	}
	n := int(head[1] & 0x7f)
	if n > 125 {
		return "", errors.New("a frame of another kind")
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		return "", err
	}
	if head[0]&0xf == 8 {
		return "", io.EOF
	}
	return string(masked(p, mask)), nil
}

func masked(p, mask []byte) []byte {
	if mask == nil {
		return p
	}
	m := binary.BigEndian.Uint32(mask)
	for i := range p {
		p[i] ^= byte(m >> (24 - 8*(i%4)))
	}
	return p
}
