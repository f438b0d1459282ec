package gatetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// argHeader steers a handler.
const argHeader = "Suite-Arg"

// Handle is the handler of a route. Its error is the handler's.
func (o Options) Handle(route Route, x Exchange) error {
	c := o.script
	c.enter(route)
	defer c.running.Add(-1)
	defer c.recoverInside(func() { x.Reply(http.StatusInternalServerError, "") })
	do := map[Route]func(Exchange) error{
		Echo: c.echo, Inflate: c.inflate, Ignore: ignore, Hold: c.hold, Watch: c.watch, Item: ignore, Inspect: c.inspect, Panic: explode,
		Abort: abort, Events: c.stream, Flood: c.flood, Socket: c.socket, Trailers: c.trailers, Interim: interim,
		Again: c.again, Early: c.early, Observed: c.observed, Nested: c.nested, Leftover: c.leftover, Fail: c.fail,
	}[route]
	return do(x)
}

func ignore(x Exchange) error {
	x.Reply(http.StatusOK, "ok")
	return nil
}

func explode(x Exchange) error {
	blowUp(x.Header(argHeader))
	return nil
}

// abort cuts an answer that has begun. Where streams begin when the handler is done,
// there is none.
func abort(x Exchange) error {
	x.Stream("text/plain", func(w io.Writer, flush func() error) {
		_, _ = io.WriteString(w, "part")
		_ = flush()
	})
	panic(http.ErrAbortHandler)
}

func interim(x Exchange) error {
	x.Reply(http.StatusEarlyHints, "")
	x.Reply(http.StatusCreated, "ok")
	return nil
}

func (c *script) again(x Exchange) error {
	if x.Header(argHeader) == "released" {
		x.Release(c.gate)
	}
	return x.Redispatch(Echo)
}

// echo answers what it has read. A body that a gate has ended stays ended.
func (c *script) echo(x Exchange) error {
	body := x.Body()
	s, err := c.digest(body)
	if err == nil {
		x.Reply(http.StatusOK, s)
		return nil
	}
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
		n, again := body.Read(make([]byte, 1))
		if n != 0 || !errors.Is(again, rej.Reason) {
			c.errorf("a body that ended with %v went on with %d bytes and %v", err, n, again)
		}
	}
	return fmt.Errorf("reading the body: %w", err)
}

func (c *script) inflate(x Exchange) error {
	decoded, err := c.inflater.Gunzip(x.Body())
	if err != nil {
		return fmt.Errorf("inflating the body: %w", err)
	}
	defer decoded.Close()
	s, err := c.digest(decoded)
	if err == nil {
		x.Reply(http.StatusOK, s)
	}
	return err
}

// digest reads body to its end, by pieces of odd sizes, and returns what echo answers.
func (c *script) digest(body io.Reader) (string, error) {
	h, n, p := sha256.New(), 0, make([]byte, 32<<10+1)
	for i := 0; ; i++ {
		m, err := body.Read(p[:len(p)>>(i%4)])
		n += m
		c.moves.Add(1)
		c.noteMost(int64(n))
		h.Write(p[:m])
		switch {
		case err == io.EOF:
			return describe(n, h), nil
		case err != nil:
			return "", err
		}
	}
}

func (c *script) noteMost(n int64) {
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
}

// digestOf is what echo answers to body.
func digestOf(body []byte) string {
	h := sha256.New()
	h.Write(body)
	return describe(len(body), h)
}

func describe(n int, h hash.Hash) string { return fmt.Sprint(n, " ", hex.EncodeToString(h.Sum(nil))) }

func (c *script) hold(x Exchange) error {
	<-c.letGo
	x.Reply(http.StatusOK, "held")
	return nil
}

// watch reads behind the body's end, too.
func (c *script) watch(x Exchange) error {
	for range 2 {
		if _, err := c.digest(x.Body()); err != nil {
			return err
		}
	}
	ctx := x.Context()
	select {
	case <-c.letGo:
	case <-ctx.Done():
	}
	x.Reply(http.StatusOK, fmt.Sprint("context: ", ctx.Err()))
	return nil
}

func (c *script) early(x Exchange) error {
	lease, held := gate.LeaseOf(x.Context(), c.gate)
	x.Release(c.gate)
	if !held || lease.Live() {
		c.errorf("Release has released nothing")
	}
	done := make(chan struct{})
	for range 8 {
		go func() { lease.Release(); done <- struct{}{} }()
	}
	for range 8 {
		<-done
	}
	x.Release(c.gate)
	return c.hold(x)
}

func (c *script) observed(x Exchange) error {
	if _, err := c.digest(x.Body()); err != nil {
		return err
	}
	gate.Observe(x.Context(), gate.Sample{FirstByte: time.Millisecond, Status: http.StatusOK})
	return c.hold(x)
}

// leftover leaves a reader behind. Where bodies are buffered it may not: the buffer
// is the next request's.
func (c *script) leftover(x Exchange) error {
	if x.Header(argHeader) == "acquire" {
		if err := x.Acquire(c.second, gate.Request{}); err != nil {
			return err
		}
		defer x.Release(c.second)
	}
	if body := x.Body(); !c.deviations.BuffersBodies {
		go func() {
			defer func() { c.leftovers <- recover() }()
			<-c.letGo
			_, _ = body.Read(make([]byte, 1))
		}()
	}
	return ignore(x)
}

// nested asks the second gate, twice: it must be asked once.
func (c *script) nested(x Exchange) error {
	if x.Header(argHeader) != "unread" {
		if _, err := c.digest(x.Body()); err != nil {
			return err
		}
	}
	x.SetClass(gate.Bulk)
	for range 2 {
		if err := x.Acquire(c.second, gate.Request{Flow: "nested"}); err != nil {
			return fmt.Errorf("second gate: %w", err)
		}
	}
	defer x.Release(c.second)
	switch x.Header(argHeader) {
	case "work":
		return c.watch(x)
	case "unread":
		return c.echo(x)
	}
	return c.inspect(x)
}

// fail answers with the case's refusal.
func (c *script) fail(x Exchange) error {
	arg := x.Header(argHeader)
	if arg != "unread" {
		if _, err := c.digest(x.Body()); err != nil {
			return err
		}
	}
	err := fmt.Errorf("the handler: %w", c.failed.Load())
	if arg == "return" {
		return err
	}
	for _, mine := range []error{nil, (*gate.Rejection)(nil), errors.New("mine"), context.Canceled} {
		if x.Refuse(mine) {
			c.errorf("Refuse took %v for a refusal", mine)
		}
	}
	if !x.Refuse(err) {
		c.errorf("Refuse did not find the refusal in %v", err)
	}
	return nil
}

func (c *script) trailers(x Exchange) error {
	s, err := c.digest(x.Body())
	if err != nil {
		return err
	}
	got := x.Trailer("Suite-Sum")
	x.SetTrailer("Suite-Echo", got)
	x.Reply(http.StatusOK, s+" "+got)
	return nil
}

// facts are what Inspect has found.
type facts struct {
	Live   bool       // the request holds a lease of Options.Gate
	Second bool       // and of the second gate
	Class  gate.Class // of the context
	Flow   string
	Weight int
	Body   string // its type
	Writer string // the types of the writers, from the handler's to the server's
	Server bool   // the last of them is the server's own
}

func (c *script) inspect(x Exchange) error {
	ctx := x.Context()
	q := gate.Request{}.In(ctx)
	f := facts{Class: q.Class, Flow: q.Flow, Weight: q.Weight, Body: fmt.Sprintf("%T", x.Body())}
	_, f.Live = gate.LeaseOf(ctx, c.gate)
	if c.second != nil {
		_, f.Second = gate.LeaseOf(ctx, c.second)
	}
	if h, ok := x.(interface{ writer() http.ResponseWriter }); ok {
		f.Writer, f.Server = c.chain(h.writer())
	}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	x.Reply(http.StatusOK, string(b))
	return nil
}

// chain lists the writers that w is made of.
func (c *script) chain(w http.ResponseWriter) (types string, server bool) {
	c.mu.Lock()
	last := c.writer
	c.mu.Unlock()
	var b bytes.Buffer
	for {
		fmt.Fprintf(&b, "%T ", w)
		if server = w == last; server {
			return b.String(), true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return b.String(), false
		}
		w = u.Unwrap()
	}
}
