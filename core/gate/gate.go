package gate

import "context"

// Gate admits requests.
//
// Acquire returns a lease that the caller must release, or the zero Lease and
// an error. The error is a *[Rejection]; it wraps the context's error when the
// context ended first. Acquire waits no longer than the gate's own bound and
// ctx allow, and a context that is already done is refused even where there is
// room. It is safe for concurrent use.
//
// A Gate must be comparable with ==, as pointers are: a request is marked with
// the gate that admitted it.
type Gate interface {
	Acquire(ctx context.Context, r Request) (Lease, error)
}

// Request says what a caller asks a gate for. Each gate reads the fields that
// concern it and ignores the others. The zero Request asks for the gate's own
// default price in the class and flow of the context.
type Request struct {
	// Lane names the queue to wait in: a tenant inbound, a back end outbound.
	// Gates without lanes ignore it.
	Lane string
	// Flow is the fairness key: waiters of one class are served in turn by
	// flow. Empty takes the context's flow; if that is empty too, all such
	// callers share one flow.
	Flow string
	// Class is how urgent the work is. The zero Class takes the context's
	// class, and [Default] where the context has none.
	Class Class
	// Weight is the flow's share beside other flows, 1 to 1000. 0 takes the
	// context's weight if Flow is empty or the context's too, and 1 otherwise.
	Weight int
	// Cost is the price in the gate's unit (slots, cost units). 0 lets the
	// gate price the request. Byte admission takes its price from Bytes.
	Cost int64
	// Bytes is the length of the body as declared: 0 = no body, negative =
	// unknown.
	Bytes int64
	// Buffered is how much of the body lies in memory already while the
	// request waits. 0 where bodies are read only after admission.
	Buffered int64
	// Method and Route are the HTTP method and the pattern that matched, ""
	// where it is not known yet.
	Method, Route string
	// Path is the decoded URL path without the query. It is compared with
	// configured paths and goes nowhere else.
	Path string
	// ContentType is the body's media type, as sent.
	ContentType string
	// Retry says that the call was attempted before. Gates count it, and no more.
	Retry bool
}

// In returns r with the class, flow and weight that it leaves open taken from
// ctx. Class is never zero in the result, nor Weight.
func (r Request) In(ctx context.Context) Request {
	if r.Class == 0 || r.Flow == "" || r.Weight == 0 {
		r.fill(scopeOf(ctx))
	}
	return r
}

func (r *Request) fill(s *scope) {
	if s != nil {
		if r.Class == 0 {
			r.Class = s.class
		}
		if r.Flow == "" {
			r.Flow = s.flow
		}
		if r.Weight == 0 && r.Flow == s.flow {
			r.Weight = int(s.weight)
		}
	}
	if r.Class == 0 {
		r.Class = Default
	}
	if r.Weight == 0 {
		r.Weight = 1
	}
}
