package gate

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MarkerHeader is the response header that only local refusals carry; its
// value is the [Reason].
const MarkerHeader = "Headgate-Reason"

// Rejection is the error of a refused request. errors.As finds it below
// whatever a framework wraps around it, and errors.Is finds its Reason and its
// Cause. A rejection is never changed once it is returned.
type Rejection struct {
	// Reason is why.
	Reason Reason
	// Gate is the package of the gate that refused: "admission", "lanes",
	// "inflight".
	Gate string
	// Lane is the lane that refused: a back end's name or an opaque id, never
	// a tenant's key. "" where the gate has no lanes.
	Lane string
	// Class is the class that the request waited in; zero where the gate has
	// none.
	Class Class
	// Waited is how long the request stood in the queue.
	Waited time.Duration
	// Position is how many waiters, this one included, stood before the slot
	// when it left; 0 = it never queued.
	Position int
	// Limit is the limit that refused, in Unit.
	Limit int64
	// Unit is what Limit counts, "bytes" for example.
	Unit string
	// RetryAfter is when a retry may succeed; 0 where none can.
	RetryAfter time.Duration
	// Advice names the settings or actions that change the outcome.
	Advice string
	// Cause is the context's error, or nil.
	Cause error
}

// Error says, in one line, that the refusal is local, which gate refused and
// why, what the numbers were and which setting changes it. For [Canceled] it
// does not speak of a refusal. It never repeats Cause.
func (r *Rejection) Error() string {
	var b strings.Builder
	if r.Reason != Canceled {
		b.WriteString("refused locally by ")
	}
	b.WriteString(r.Gate)
	if r.Lane != "" {
		fmt.Fprintf(&b, ": lane %q", r.Lane)
	}
	fmt.Fprintf(&b, ": %s", strings.ReplaceAll(string(r.Reason), "_", " "))
	if r.Waited > 0 {
		fmt.Fprintf(&b, " after %.1fs", r.Waited.Seconds())
	}
	if r.Position > 0 {
		fmt.Fprintf(&b, " at position %d", r.Position)
	}
	var facts []string
	if r.Class != 0 {
		facts = append(facts, "class "+r.Class.String())
	}
	if r.Limit > 0 {
		facts = append(facts, strings.TrimSpace("limit "+strconv.FormatInt(r.Limit, 10)+" "+r.Unit))
	}
	if len(facts) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(facts, ", "))
	}
	if r.Advice != "" {
		b.WriteString(": " + r.Advice)
	}
	return b.String()
}

// Unwrap lets errors.Is find the reason and the context's error.
func (r *Rejection) Unwrap() []error {
	if r.Cause != nil {
		return []error{r.Reason, r.Cause}
	}
	return []error{r.Reason}
}

// Timeout reports whether the request ran out of time.
func (r *Rejection) Timeout() bool {
	return r.Reason == QueueTimeout || r.Reason == Deadline || r.Reason == SlowBody
}

// Status returns the HTTP status of the refusal. For [Canceled] it is 499,
// which is for logs: nothing is written to a client that has left.
func (r *Rejection) Status() int {
	code, _ := r.Reason.status()
	return code
}

// RetryAfterSeconds returns the Retry-After header's value, whole seconds
// rounded up and at least "1", or "" where a retry cannot help: the reason says
// so, or RetryAfter is not above 0.
func (r *Rejection) RetryAfterSeconds() string {
	if _, retry := r.Reason.status(); !retry || r.RetryAfter <= 0 {
		return ""
	}
	n := int64(r.RetryAfter / time.Second)
	if r.RetryAfter%time.Second != 0 { // adding first would overflow near the largest Duration
		n++
	}
	return strconv.FormatInt(n, 10)
}
