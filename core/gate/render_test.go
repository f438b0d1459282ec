package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

var timedOut = gate.Rejection{
	Reason: gate.QueueTimeout, Gate: "inflight", Lane: "BASE|MODEL", Class: gate.Bulk,
	Waited: 300 * time.Second, Position: 14, Limit: 6, RetryAfter: 40 * time.Second, Cause: context.DeadlineExceeded,
	Advice: "raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane",
}

const timedOutText = `refused locally by inflight: lane \"BASE|MODEL\": queue timeout after 300.0s at position 14 ` +
	`(class bulk, limit 6): raise MaxInflight or QueueTimeout, or reduce concurrent load on this lane`

func TestRenderGolden(t *testing.T) {
	tooLarge := gate.Rejection{Reason: gate.PayloadTooLarge, Gate: "admission", Limit: 1 << 20, Unit: "bytes"}
	tenant := gate.Rejection{Reason: gate.TenantQueueFull, Gate: "lanes", Lane: "t7"}
	slow := gate.Rejection{Reason: gate.SlowBody, Gate: "admission", Waited: 250 * time.Millisecond}
	const tooLargeText = `refused locally by admission: payload too large (limit 1048576 bytes)`
	const problemType = "application/problem+json"
	for _, c := range []struct {
		r          *gate.Rejection
		f          gate.Format
		body, kind string
	}{
		{&timedOut, gate.Problem, `{"class":"bulk","code":"queue_timeout","detail":"` + timedOutText + `","gate":"inflight",` +
			`"lane":"BASE|MODEL","limit":6,"status":503,"title":"Service Unavailable","type":"about:blank","waited_s":300}`, problemType},
		{&timedOut, gate.OpenAI, `{"error":{"code":"queue_timeout","message":"` + timedOutText + `","param":null,"type":"server_error"}}`, "application/json"},
		{&timedOut, gate.Anthropic, `{"error":{"code":"queue_timeout","message":"` + timedOutText + `","type":"overloaded_error"},"type":"error"}`, "application/json"},

		{&tooLarge, gate.Problem, `{"code":"payload_too_large","detail":"` + tooLargeText + `","gate":"admission","limit":1048576,` +
			`"status":413,"title":"Content Too Large","type":"about:blank"}`, problemType},
		{&tooLarge, gate.OpenAI, `{"error":{"code":"payload_too_large","message":"` + tooLargeText + `","param":null,"type":"invalid_request_error"}}`, "application/json"},
		{&tooLarge, gate.Anthropic, `{"error":{"code":"payload_too_large","message":"` + tooLargeText + `","type":"request_too_large"},"type":"error"}`, "application/json"},

		{&tenant, gate.Problem, `{"code":"tenant_queue_full","detail":"refused locally by lanes: lane \"t7\": tenant queue full","gate":"lanes","lane":"t7",` +
			`"status":429,"title":"Too Many Requests","type":"about:blank"}`, problemType},
		{&tenant, gate.OpenAI, `{"error":{"code":"tenant_queue_full","message":"refused locally by lanes: lane \"t7\": tenant queue full","param":null,"type":"rate_limit_error"}}`, "application/json"},
		{&tenant, gate.Anthropic, `{"error":{"code":"tenant_queue_full","message":"refused locally by lanes: lane \"t7\": tenant queue full","type":"rate_limit_error"},"type":"error"}`, "application/json"},

		{&slow, gate.Format(99), `{"code":"slow_body","detail":"refused locally by admission: slow body after 0.2s","gate":"admission",` +
			`"status":408,"title":"Request Timeout","type":"about:blank","waited_s":0.25}`, problemType},
		{&slow, gate.OpenAI, `{"error":{"code":"slow_body","message":"refused locally by admission: slow body after 0.2s","param":null,"type":"timeout"}}`, "application/json"},
		{&slow, gate.Anthropic, `{"error":{"code":"slow_body","message":"refused locally by admission: slow body after 0.2s","type":"timeout_error"},"type":"error"}`, "application/json"},
	} {
		body, kind := c.r.Render(c.f)
		if string(body) != c.body || kind != c.kind {
			t.Errorf("%s as %s\n got %s %s\nwant %s %s", c.r.Reason, c.f, kind, body, c.kind, c.body)
		}
	}
}

// titles are the status phrases of RFC 9110, which RFC 9457 asks for beside
// about:blank. 499 is of no RFC.
var titles = map[int]string{408: "Request Timeout", 413: "Content Too Large", 429: "Too Many Requests",
	499: "Client Closed Request", 503: "Service Unavailable"}

// Whatever a rejection holds, each body is JSON of its format's shape.
func TestRenderShapes(t *testing.T) {
	for _, c := range reasons {
		for _, class := range []gate.Class{0, gate.Bulk, 9, 255} {
			r := &gate.Rejection{Reason: c.reason, Gate: "lanes", Lane: "</script>\xff\u2028\"\n", Class: class,
				Waited: 1<<63 - 1, Position: 1 << 30, Limit: 1<<63 - 1, Unit: "bytes", Advice: "do & so"}
			var problem struct {
				Type, Title, Code, Detail, Gate, Lane, Class string
				Status                                       int
				Limit                                        int64
			}
			decode(t, r, gate.Problem, &problem)
			if problem.Type != "about:blank" || problem.Title != titles[c.status] || problem.Status != c.status ||
				problem.Code != string(c.reason) || problem.Detail != r.Error() || problem.Gate != "lanes" ||
				problem.Limit != r.Limit || (problem.Class == "") != (class == 0) {
				t.Errorf("%s: problem %+v", c.reason, problem)
			}
			var openai, anthropic struct {
				Type  string
				Error struct{ Message, Type, Code string }
			}
			decode(t, r, gate.OpenAI, &openai)
			decode(t, r, gate.Anthropic, &anthropic)
			if e := openai.Error; e.Message != r.Error() || e.Code != string(c.reason) || e.Type == "" {
				t.Errorf("%s: openai %+v", c.reason, openai)
			}
			if e := anthropic.Error; anthropic.Type != "error" || e.Message != r.Error() || e.Code != string(c.reason) || e.Type == "" {
				t.Errorf("%s: anthropic %+v", c.reason, anthropic)
			}
		}
	}
}

func decode(t *testing.T, r *gate.Rejection, f gate.Format, into any) {
	t.Helper()
	body, _ := r.Render(f)
	if err := json.Unmarshal(body, into); err != nil {
		t.Errorf("%s as %s is not JSON: %v: %s", r.Reason, f, err, body)
	}
	if strings.Contains(string(body), "</script>") {
		t.Errorf("%s as %s could end a script element: %s", r.Reason, f, body)
	}
}

// The cause may be of anybody's making, and the flow of the request is a
// tenant's name: neither reaches the text, the body or a header.
func TestRejectionKeepsSecrets(t *testing.T) {
	const secret = "acme-corp"
	ctx := gate.WithFlow(context.Background(), secret, 1)
	r := timedOut
	r.Cause = fmt.Errorf("%s: %v: %w", secret, (gate.Request{}).In(ctx).Flow, context.Canceled)
	texts := []string{r.Error(), r.RetryAfterSeconds(), fmt.Sprint(&r), fmt.Sprintf("%v %s", error(&r), error(&r))}
	for f := range gate.Format(4) {
		body, kind := r.Render(f)
		texts = append(texts, string(body), kind)
	}
	for _, s := range texts {
		if strings.Contains(s, secret) {
			t.Errorf("a tenant's name in %q", s)
		}
	}
	panicked := func() (v any) {
		defer func() { v = recover() }()
		gate.WithFlow(ctx, secret, 1001)
		return nil
	}()
	if panicked == nil || strings.Contains(fmt.Sprint(panicked), secret) {
		t.Errorf("WithFlow panics with %v", panicked)
	}
}
