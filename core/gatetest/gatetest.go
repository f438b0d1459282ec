package gatetest

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Adapter is a framework's adapter as the suite drives it. Start and ItemRoute
// must be set.
type Adapter struct {
	// Start builds the app that Options describes and serves it on l, until the
	// server is closed. It does not wait for that.
	Start func(l net.Listener, o Options) Server
	// ItemRoute is the route that a decision about a request for [Item] bears: its
	// pattern, or "unmatched" where the middleware runs before the router.
	ItemRoute string
	// Deviations are what the framework cannot do.
	Deviations Deviations
	// Daemons are functions, named as in a stack trace, whose goroutines outlive the
	// framework's servers. Those goroutines are not counted as leaked.
	Daemons []string
}

// Server is a running server. *http.Server is one.
type Server interface {
	// Shutdown stops gracefully: it returns nil once every request is answered, or
	// the error of ctx.
	Shutdown(ctx context.Context) error
	// Close ends the server and its connections at once. It may come after Shutdown.
	Close() error
}

// Deviations are what a framework cannot do. Where one is set, the suite asserts
// the fallback that its comment states.
type Deviations struct {
	// BuffersBodies: the server reads a body whole before the gate is asked. Then the
	// gate is told so (Buffered is the body's length), a client that asks with Expect
	// is let send first, and a body that never ends never reaches the gate.
	BuffersBodies bool
	// Prefetches: the server reads the beginning of a body of known length, up to
	// 16 KiB, before the gate is asked. Then the gate is told so (Buffered is what
	// lies in memory), and a client that asks with Expect is let send first.
	Prefetches bool
	// NoDisconnectSignal: nobody learns that a client has left while its request
	// waits or runs. Then a waiter leaves at the gate's own bound, a stream when a
	// write fails.
	NoDisconnectSignal bool
	// NoHTTP2: the server speaks HTTP/1 only. Then a client that offers both over TLS
	// gets HTTP/1.1, and the cases are run over that alone.
	NoHTTP2 bool
	// NoTrailers: the framework drops trailers. Then everything else of such a
	// message arrives.
	NoTrailers bool
	// NoInterim: the framework sends no 1xx of a handler's. Then its final answer
	// arrives.
	NoInterim bool
	// PanicsEndProcess: the server recovers nothing, http.ErrAbortHandler included.
	// Then panics are thrown where a recovery meets them, outside or inside of the
	// gate, and nowhere else; that a declaration is false does not show.
	PanicsEndProcess bool
	// NotNetHTTP: there is no http.ResponseWriter, and no net/http wrapper fits
	// around the app. Then streams and upgrades stand for the writer, and a client
	// that gives up for a timeout that answers.
	NotNetHTTP bool
}

// Options describe one app. From the outside in, it is:
//
//  1. A middleware that defers [Options.Recover] and sets the response header
//     "Access-Control-Allow-Origin: *".
//  2. The adapter's middleware over Gate, with Format, Skip, Flow and OnDecision.
//  3. Auth, unless it is nil. A request that it turns away is answered 401, its body
//     unread.
//  4. The adapter's middleware over Inner, unless that is nil, with nothing else set.
//  5. All [Routes], for every method, each with [Options.Handle] as its handler. An
//     error of Handle is returned where handlers return errors, and elsewhere given
//     to the adapter's Refuse; what is no gate's is answered 500.
type Options struct {
	Gate, Inner gate.Gate
	Format      gate.Format
	// ServerTiming is the middleware's over Gate.
	ServerTiming bool
	// Skip is told the path. nil skips none.
	Skip func(path string) bool
	// Flow is told the request's headers. nil means the adapter's default.
	Flow func(header func(name string) string) string
	// OnDecision is never nil.
	OnDecision func(Decision)
	// Auth returns the context that the request goes on with, and whether it does.
	Auth func(ctx context.Context, header func(name string) string) (context.Context, bool)

	// ErrorLog takes what the server has to complain about. Never nil.
	ErrorLog *log.Logger
	// TLS is the server's configuration, nil for plain HTTP/1. With it, HTTP/2 is
	// offered where the framework has it.
	TLS *tls.Config
	// ReadTimeout and WriteTimeout are the server's, as net/http has them; 0 = none.
	ReadTimeout, WriteTimeout time.Duration

	script *script
}

// Decision is what the adapter's hook has to tell: the request's Method and Route as they
// are labelled, how long it Waited in the queue, and Err, the refusal, nil if it was admitted.
type Decision struct {
	Method, Route string
	Waited        time.Duration
	Err           error
}

// Run runs every case against a, each as a subtest of t over each protocol. Nothing
// else may run beside it: goroutines are counted.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	s := newSuite(a, patience)
	for _, c := range s.cases() {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range c.protocols {
				t.Run(string(p), func(t *testing.T) { s.run(t, c, p) })
			}
		})
	}
}

// patience is how long nothing may move in a case that waits for something.
const patience = 20 * time.Second

type protocol string

const (
	http1 protocol = "HTTP1"
	http2 protocol = "HTTP2"
)

// scene is one case. It is performed once over each of its protocols.
type scene struct {
	name      string
	protocols []protocol
	play      func(*env)
	timed     bool // it needs timeouts that a slow machine may miss: see [env.short]
}

func both(name string, play func(*env)) scene {
	return scene{name: name, protocols: []protocol{http1, http2}, play: play}
}

func first(name string, play func(*env)) scene {
	return scene{name: name, protocols: []protocol{http1}, play: play}
}

func timed(name string, play func(*env)) scene {
	c := both(name, play)
	c.timed = true
	return c
}

type suite struct {
	Adapter
	patience time.Duration
	tick     time.Duration // how often a case looks at what it waits for
	identity *identity
	together bool // several scenes are performed at once: goroutines and memory tell nothing
}

func newSuite(a Adapter, patience time.Duration) *suite {
	if a.Start == nil || a.ItemRoute == "" {
		panic("gatetest: Adapter.Start and Adapter.ItemRoute must be set")
	}
	return &suite{Adapter: a, patience: patience, tick: time.Millisecond, identity: newIdentity()}
}

// cases returns all cases as this adapter meets them.
func (s *suite) cases() []scene {
	var all []scene
	for _, part := range [][]scene{
		leaseScenes(), streamScenes(), queueScenes(), bodyScenes(), slowScenes(), uploadScenes(), answerScenes(), nameScenes(), chainScenes(),
	} {
		all = append(all, part...)
	}
	if s.Deviations.NoHTTP2 {
		for i := range all {
			all[i].protocols = []protocol{http1}
		}
		all = append(all, first("declared_no_HTTP2", noHTTP2))
	}
	return all
}
