package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
)

// batchAPI is the route of whole batches, one call for many prompts. Its errors, and
// those of its items, have OpenAI's shape.
var batchAPI = api{"/v1/batch", gate.OpenAI} //nolint:gochecknoglobals // never written

// maxPrompts is how many prompts a batch may have.
const maxPrompts = 100

// batch is what the body of POST /v1/batch holds.
type batch struct {
	Model   string
	Prompts []string
}

// batchAnswer is what that answers: a result for each prompt, in their order.
type batchAnswer struct {
	Model     string        `json:"model"`
	Succeeded int           `json:"succeeded"`
	Failed    int           `json:"failed"`
	Results   []batchResult `json:"results"`
}

// batchResult is what became of one prompt: a response, or an error.
type batchResult struct {
	Index    int             `json:"index"`
	Status   int             `json:"status"`             // that a call of its own would have had
	Response json.RawMessage `json:"response,omitempty"` // the back end's chat completion, as it is
	Error    json.RawMessage `json:"error,omitempty"`    // as in {"error": ...} of a call
	// Reason says that headgate has refused the call, and why; RetryAfterS when it may be
	// let in.
	Reason      gate.Reason `json:"headgate_reason,omitempty"`
	RetryAfterS int64       `json:"retry_after_s,omitempty"`
}

// price is what the batch costs in the tenant's lane: bytes long, and as many answers at a
// time as are asked for, or as can be open. A lane's cost is work that runs together, not
// work in all: a batch that takes its calls in turns must not shut out everybody else.
func (b *batch) price(bytes int, atOnce int64) int64 {
	n := int64(len(b.Prompts))
	return lanes.Price(lanes.Features{Bytes: int64(bytes), Messages: n, N: min(n, atOnce)})
}

// atOnce is how many calls of a batch can be open to a model of the back end at base.
func (o outbound) atOnce(base, model string) int64 {
	most, reserve := o.MaxInflight, o.InteractiveReserve
	lane := o.Lanes[inflight.LaneKey(base, model, o.Models)]
	if lane.MaxInflight != nil {
		most = *lane.MaxInflight
	}
	if lane.InteractiveReserve != nil {
		reserve = *lane.InteractiveReserve
	}
	if most == 0 || o.Mode != gate.Enforce {
		return maxPrompts
	}
	return int64(max(most-max(reserve, 0), 1))
}

// batches makes a chat completion of every prompt, all at once: they are bulk work and
// wait where others' are not kept waiting by them. The bytes of the body are held until
// the answer.
func (g *gateway) batches(refuse func(http.ResponseWriter, *http.Request, error) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := wholeBody(batchAPI, w, r, refuse)
		if !ok {
			return
		}
		b, p := parseBatch(text)
		if p != nil {
			writeJSON(w, p.status, batchAPI.shape(*p))
			return
		}
		atOnce := g.outbound.Load().atOnce(g.backend.url.String(), b.Model)
		r, leave, ok := g.enter(batchAPI, w, r, gate.Request{Class: gate.Bulk, Cost: b.price(len(text), atOnce)}, refuse)
		if !ok {
			return
		}
		defer leave()
		ctx := gate.WithClass(g.beside(r.Context()), gate.Bulk)
		answer := batchAnswer{Model: b.Model, Results: make([]batchResult, len(b.Prompts))}
		var calls sync.WaitGroup
		for i, text := range b.Prompts {
			calls.Go(func() { answer.Results[i] = g.complete(ctx, r, i, newPrompt(text).to(b.Model)) })
		}
		calls.Wait()
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // the client has left: nobody reads an answer
		}
		answer.write(w)
	})
}

// parseBatch returns the batch that text holds, or what is wrong with it.
func parseBatch(text []byte) (batch, *problem) {
	var in struct {
		Model   string                          `json:"model"`
		Prompts [maxPrompts + 1]json.RawMessage `json:"prompts"`
	}
	b, err := batch{}, decodeObject(text, &in)
	if err == nil {
		b.Model = in.Model
		b.Prompts, err = listed("prompts", in.Prompts[:])
	}
	var wrong string
	switch n := len(b.Prompts); {
	case err != nil:
		return b, &problem{http.StatusBadRequest, "invalid_json", `want {"model": "...", "prompts": ["...", ...]}: ` + jsonFault(err)}
	case b.Model == "":
		wrong = "model is empty: want the name of a model"
	case len(b.Model) > maxModel:
		wrong = fmt.Sprintf("model has %d bytes: want at most %d", len(b.Model), maxModel)
	case n == 0:
		wrong = fmt.Sprintf("prompts is empty: want 1 to %d", maxPrompts)
	case n > maxPrompts:
		wrong = fmt.Sprintf("prompts has more than %d entries: send the others in another batch", maxPrompts)
	default:
		return b, nil
	}
	return b, &problem{http.StatusUnprocessableEntity, "invalid_batch", wrong}
}

// complete makes the call with a body for the call in, of which it is number i.
func (g *gateway) complete(ctx context.Context, in *http.Request, i int, body callBody) batchResult {
	resp, err := outgoing{g}.RoundTrip(g.completion(ctx, in, body))
	if err != nil {
		return g.incomplete(ctx, i, err)
	}
	defer func() { _ = resp.Body.Close() }() // what matters of it was read
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return g.incomplete(ctx, i, err)
	case len(text) > maxAnswer:
		return failedPrompt(i, problem{http.StatusBadGateway, "answer_too_large", fmt.Sprintf("the upstream's answer has more than %d bytes", maxAnswer)})
	}
	if err := g.keep(in, len(text)); err != nil {
		return g.incomplete(ctx, i, err)
	}
	switch {
	case resp.StatusCode == http.StatusOK && json.Valid(text):
		return batchResult{Index: i, Status: resp.StatusCode, Response: text}
	}
	var says struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(text, &says) == nil && resp.StatusCode >= 400 && len(says.Error) > 0 {
		return batchResult{Index: i, Status: resp.StatusCode, Error: says.Error}
	}
	return failedPrompt(i, problem{http.StatusBadGateway, "upstream_answer", fmt.Sprintf("the upstream's answer is no chat completion, its status is %d", resp.StatusCode)})
}

// keep pays for n bytes of an answer that wait for the others of the call in: they are memory
// as its body is, and come back with it. The error says that there is no room for them.
func (g *gateway) keep(in *http.Request, n int) error {
	if g.hg == nil {
		return nil
	}
	lease, _ := gate.LeaseOf(in.Context(), g.hg.Bytes)
	return lease.Grow(int64(n))
}

// incomplete is what a prompt gets that has no answer.
func (g *gateway) incomplete(ctx context.Context, i int, err error) batchResult {
	if rej := (*gate.Rejection)(nil); errors.As(err, &rej) {
		text, _ := rej.Render(batchAPI.format)
		r := batchResult{Index: i, Status: rej.Status(), Error: errorIn(text), Reason: rej.Reason}
		r.RetryAfterS, _ = strconv.ParseInt(rej.RetryAfterSeconds(), 10, 64) // "" reads 0, which is left out
		return r
	}
	if ctx.Err() != nil {
		return batchResult{Index: i} // the client has left: nobody reads it
	}
	return failedPrompt(i, g.unanswered(batchAPI.path, err))
}

func failedPrompt(i int, p problem) batchResult {
	text, err := json.Marshal(batchAPI.shape(p))
	if err != nil {
		panic(err) // it is strings only
	}
	return batchResult{Index: i, Status: p.status, Error: errorIn(text)}
}

// errorIn returns what stands under "error" in an answer of our own.
func errorIn(text []byte) json.RawMessage {
	var says struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(text, &says); err != nil {
		panic(err) // it is ours
	}
	return says.Error
}

// completion is the call with a body for the call in. It presents what that presents.
func (g *gateway) completion(ctx context.Context, in *http.Request, body callBody) *http.Request {
	chat := apis[0]
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, chat.path, nil)
	if err != nil {
		panic(err) // both are constant
	}
	out.ContentLength, out.GetBody = body.size(), body.open
	out.Body, _ = body.open()
	out.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {in.UserAgent()}}
	if key := in.Header.Values("Authorization"); len(key) > 0 {
		out.Header["Authorization"] = key
	}
	g.backend.rewrite(chat, &httputil.ProxyRequest{In: in, Out: out})
	return out
}

// write answers with 200 where anything has succeeded. Else the status is the one that
// all results have, or 502; where all were refused, the answer is marked as one refusal
// is that stands alone.
func (b *batchAnswer) write(w http.ResponseWriter) {
	var status int
	b.Succeeded, b.Failed, status = together(w.Header(), b.Results)
	writeJSON(w, status, b)
}

// together is how many of the results, at least one, are answers, how many are not, and the
// status of all, whose marks it sets.
func together(h http.Header, results []batchResult) (succeeded, failed, status int) {
	first, same, refused, retry := results[0], true, 0, int64(0)
	for _, r := range results {
		if r.Error == nil {
			succeeded++
		} else {
			failed++
		}
		if r.Reason != "" {
			refused++
		}
		same = same && r.Status == first.Status
		retry = max(retry, r.RetryAfterS)
	}
	status = http.StatusOK
	if succeeded == 0 {
		status = first.Status
		if !same {
			status = http.StatusBadGateway
		}
	}
	if refused == len(results) {
		h.Set(gate.MarkerHeader, string(first.Reason))
		if retry > 0 {
			h.Set("Retry-After", strconv.FormatInt(retry, 10))
		}
	}
	return succeeded, failed, status
}
