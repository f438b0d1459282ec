package clientwrap

import (
	"net/http"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// ClassHeader is the header in which Config.ClassHeader sends the class, by its name.
// The next service may trust it if it can be reached by nobody else: see
// [gate.ParseClass].
const ClassHeader = "Headgate-Class"

// Config says how requests are put to the limiter. The zero Config is ready to use.
// Its functions run on the request's goroutine, before it waits.
type Config struct {
	// Lane names the lane of a request. It gets a copy of the request, of which it may
	// replace the Body (having read some of it, for example) and nothing else. nil and
	// "" take scheme and host, in lower case and without a default port:
	// "https://api.example.com".
	Lane func(*http.Request) string
	// Skip lets a request pass beside the limiter: a health probe, for example. nil
	// skips none.
	Skip func(*http.Request) bool
	// MaxHold is the longest that an exchange may hold its slot, from the moment it
	// has it. Then its context is canceled, its slot comes back, and it fails, or a Read
	// of its body does, with a [gate.Rejection] of reason max_hold. With
	// ReleaseAtHeaders it bounds the time to the response head. 0 = no bound.
	MaxHold time.Duration
	// ReleaseAtHeaders gives the slot back when the response head has arrived, for
	// back ends that are done then. Reading the body is not bounded any more.
	ReleaseAtHeaders bool
	// AsError makes a refusal an error, the *[gate.Rejection], instead of a response.
	// Clients that retry on errors will retry it.
	AsError bool
	// Format is the shape of a refusal's body. The zero Format is [gate.Problem].
	Format gate.Format
	// ClassHeader sends the class of the request's context to the next service, in
	// the header [ClassHeader], in place of one that is there.
	ClassHeader bool
}

// check panics on a configuration that cannot work. Clients are built at start-up,
// from code: there is nobody to hand an error to.
func (c *Config) check() {
	if c.MaxHold < 0 {
		panic("clientwrap: Config.MaxHold is " + c.MaxHold.String() + ": want at least 0s (0s = no bound)")
	}
	if _, err := c.Format.MarshalText(); err != nil {
		panic("clientwrap: Config.Format: " + err.Error())
	}
}
