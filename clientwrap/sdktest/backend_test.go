package sdktest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/headgate-go/headgate/clientwrap"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

// guard is how long a test may hang before it fails.
const guard = 30 * time.Second

const (
	base  = "http://api.example.com"
	model = "small"
)

// key is the lane of all calls here.
func key(base string) string { return inflight.LaneKey(base, model, []string{model}) }

// slots opens a limiter with n slots a lane.
func slots(t *testing.T, n int, wait time.Duration) *inflight.Limiter {
	t.Helper()
	c := inflight.DefaultConfig()
	c.MaxInflight, c.InteractiveReserve, c.QueueTimeout = n, 0, wait
	l, err := inflight.New(c)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// hold takes a slot until give is called.
func hold(t *testing.T, l *inflight.Limiter, base string) (give func()) {
	t.Helper()
	lease, err := l.Acquire(context.Background(), gate.Request{Lane: key(base)})
	require.NoError(t, err)
	return lease.Release
}

func lane(t *testing.T, l *inflight.Limiter) inflight.LaneSnapshot {
	t.Helper()
	lanes := l.Snapshot().Lanes
	require.Len(t, lanes, 1)
	return lanes[0]
}

func inFlight(t *testing.T, l *inflight.Limiter) func() int {
	t.Helper()
	return func() int { return lane(t, l).Inflight }
}

func comesTo(t *testing.T, want int, f func() int) {
	t.Helper()
	require.Eventually(t, func() bool { return f() == want }, guard, time.Millisecond)
}

// counter counts what a client tries.
type counter struct {
	next  http.RoundTripper
	tries atomic.Int32
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.tries.Add(1)
	return c.next.RoundTrip(r)
}

// backend answers as the services of both SDKs do. It needs no socket: it is a base, and
// a http.Handler for who wants one.
type backend struct {
	mu    sync.Mutex
	fails int           // so many requests fail first
	takes time.Duration // every answer
	seen  int
	leave chan struct{} // closed when a streaming client has left; nil = streams end by themselves
}

func (b *backend) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(b.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.seen++
	fail := b.seen <= b.fails
	b.mu.Unlock()
	openAI := strings.HasSuffix(r.URL.Path, "/chat/completions")
	switch {
	case fail:
		w.WriteHeader(http.StatusInternalServerError)
	case strings.Contains(string(asked), `"stream":true`) && openAI:
		b.stream(w, r, "data: "+`{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hello"}}]}`+"\n\n", "data: [DONE]\n\n")
	case strings.Contains(string(asked), `"stream":true`):
		b.stream(w, r, "event: message_start\ndata: "+`{"type":"message_start","message":{"id":"1","type":"message","role":"assistant","content":[]}}`+"\n\n",
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	case openAI:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}]}`)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"1","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}]}`)
	}
}

// stream sends the first event, and the last if nobody has to leave before.
func (b *backend) stream(w http.ResponseWriter, r *http.Request, first, last string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, first)
	_ = http.NewResponseController(w).Flush()
	if b.leave != nil {
		<-r.Context().Done()
		close(b.leave)
		return
	}
	_, _ = io.WriteString(w, last)
}

// settings is how a client is made.
type settings struct {
	base    string
	rt      http.RoundTripper
	timeout time.Duration // per attempt; 0 = the SDK's
}

// sdk is one of the two SDKs, as the tests here use it.
type sdk struct {
	format gate.Format
	// ask makes a whole call.
	ask func(context.Context, settings) error
	// open starts a stream.
	open func(context.Context, settings) events
	// response returns the response that an error of the SDK holds.
	response func(*testing.T, error) *http.Response
}

// events is a stream of either SDK.
type events interface {
	Next() bool
	Err() error
	Close() error
}

var sdks = map[string]sdk{
	"openai": {
		format: gate.OpenAI,
		ask: func(ctx context.Context, s settings) error {
			c := openAI(s)
			_, err := c.Chat.Completions.New(ctx, openAIParams())
			return err
		},
		open: func(ctx context.Context, s settings) events {
			c := openAI(s)
			return c.Chat.Completions.NewStreaming(ctx, openAIParams())
		},
		response: func(t *testing.T, err error) *http.Response {
			t.Helper()
			var e *openai.Error
			require.ErrorAs(t, err, &e)
			return e.Response
		},
	},
	"anthropic": {
		format: gate.Anthropic,
		ask: func(ctx context.Context, s settings) error {
			c := claude(s)
			_, err := c.Messages.New(ctx, claudeParams())
			return err
		},
		open: func(ctx context.Context, s settings) events {
			c := claude(s)
			return c.Messages.NewStreaming(ctx, claudeParams())
		},
		response: func(t *testing.T, err error) *http.Response {
			t.Helper()
			var e *anthropic.Error
			require.ErrorAs(t, err, &e)
			return e.Response
		},
	},
}

func openAI(s settings) openai.Client {
	o := []openaioption.RequestOption{
		openaioption.WithBaseURL(s.base + "/v1/"), openaioption.WithAPIKey("none"),
		openaioption.WithHTTPClient(&http.Client{Transport: s.rt}),
	}
	if s.timeout > 0 {
		o = append(o, openaioption.WithRequestTimeout(s.timeout))
	}
	return openai.NewClient(o...)
}

func openAIParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(`is "model": "large" better?`)},
	}
}

func claude(s settings) anthropic.Client {
	o := []anthropicoption.RequestOption{
		anthropicoption.WithoutEnvironmentDefaults(),
		anthropicoption.WithBaseURL(s.base), anthropicoption.WithAPIKey("none"),
		anthropicoption.WithHTTPClient(&http.Client{Transport: s.rt}),
	}
	if s.timeout > 0 {
		o = append(o, anthropicoption.WithRequestTimeout(s.timeout))
	}
	return anthropic.NewClient(o...)
}

func claudeParams() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     model,
		MaxTokens: 16,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(`is "model": "large" better?`))},
	}
}

// wrap returns the transport under test over next, in the lane of key.
func wrap(next http.RoundTripper, l *inflight.Limiter, base string, c clientwrap.Config) *counter {
	c.Lane = clientwrap.LaneByModel(base, model)
	return &counter{next: clientwrap.NewTransport(next, l, c)}
}
