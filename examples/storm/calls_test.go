package main

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What answers to a chat and to a panel of two mean.
func TestWhatBecameOfCalls(t *testing.T) {
	const ok = `{"object": "chat.completion"}`
	type end struct {
		verdict verdict
		why     string
	}
	for _, c := range []struct {
		name   string
		kind   kind
		status int
		reason string
		text   string
		want   []end
	}{
		{"chat", chat, 200, "", ok, []end{{answered, ""}}},
		{"chat refused", chat, 503, "queue_timeout", "{}", []end{{refused, "queue_timeout"}}},
		{"chat too slow", chat, 504, "", `{"error": {"code": "upstream_timeout"}}`, []end{{wrong, "upstream_timeout"}}},
		{"chat fails", chat, 500, "", "oops", []end{{wrong, "status 500"}}},
		{"one of a flood", flood, 200, "", ok, []end{{answered, ""}}},
		{"one of a flood refused", flood, 429, "tenant_queue_full", "{}", []end{{refused, "tenant_queue_full"}}},
		{"chat of something else", chat, 200, "", "{}", []end{{wrong, "not a chat completion"}}},
		{"chat of an error", chat, 200, "", `{"error": {"code": "x"}}`, []end{{wrong, "not a chat completion"}}},
		{
			"panel", panel, 200, "", `{"results": [{"status": 200, "response": ` + ok + `}, {"status": 503, "error": {"code": "queue_full"}, "headgate_reason": "queue_full"}]}`,
			[]end{{answered, ""}, {refused, "queue_full"}},
		},
		{
			"panel without answers", panel, 504, "", `{"results": [{"status": 504, "error": {"code": "upstream_timeout"}}, {"status": 200, "response": {}}]}`,
			[]end{{wrong, "upstream_timeout"}, {wrong, "not a chat completion"}},
		},
		{"panel refused", panel, 503, "admission_busy", "{}", []end{{refused, "admission_busy"}, {refused, "admission_busy"}}},
		{"panel fails", panel, 401, "", `{"error": {"code": "invalid_api_key"}}`, []end{{wrong, "invalid_api_key"}, {wrong, "invalid_api_key"}}},
		{"panel too short", panel, 200, "", `{"object": "chat.completion", "results": [{"status": 200}]}`, []end{{wrong, "not a panel"}, {wrong, "not a panel"}}},
		{"panel hangs up", panel, 0, "", "", []end{{lost, "connection closed"}, {lost, "connection closed"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := call{at: 3, kind: c.kind}
			if c.kind == panel {
				k.prompts = 2
			}
			if c.kind == flood {
				k.key = floodKey
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var got struct {
					Model    string
					Prompts  []string
					Messages []struct{ Role, Content string }
				}
				text, _ := io.ReadAll(r.Body)
				assert.NoError(t, json.Unmarshal(text, &got))
				assert.NotEmpty(t, got.Model)
				if c.kind == panel {
					assert.Equal(t, "/v1/batch", r.URL.Path)
					assert.Equal(t, "Bearer "+panelKey, r.Header.Get("Authorization"))
					assert.Len(t, got.Prompts, 2)
				} else {
					assert.Equal(t, "/v1/chat/completions", r.URL.Path)
					assert.Equal(t, "Bearer "+cmp.Or(k.key, chatKey), r.Header.Get("Authorization"))
					assert.Len(t, got.Messages, 1)
				}
				if c.status == 0 {
					abort(w, false)
					return
				}
				if c.reason != "" {
					w.Header().Set("Headgate-Reason", c.reason)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.text)
			}))
			defer server.Close()
			cl := newClient(server.URL, nil)
			defer cl.close()
			var got []end
			for _, o := range cl.do(t.Context(), k, time.Now()) {
				got = append(got, end{o.verdict, o.why})
				assert.Equal(t, c.kind, o.kind)
				assert.EqualValues(t, 3, o.at)
				assert.Positive(t, o.took)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// Waits are of chats alone, failed ones too, and never negative.
func TestChatWaits(t *testing.T) {
	all := []outcome{
		{kind: chat, took: 5 * time.Second, verdict: lost}, {kind: panel, took: time.Hour},
		{kind: chat, took: 900 * time.Millisecond}, {took: time.Minute},
	}
	assert.Equal(t, []time.Duration{0, 4 * time.Second}, chatWaits(all, time.Second))
	assert.Len(t, chats(all), 2)
	assert.Nil(t, chats(nil))
}

// Where there is no program to play the back end, and where it ends, the storm says so.
func TestBackEndThatFails(t *testing.T) {
	argv, env := standInApp(t, "fail")
	b := &backEnd{capacity: 1, service: time.Second}
	_, err := b.start(t.Context(), argv[0], env, nil)
	require.ErrorContains(t, err, "the back end: the app ended at once")

	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	live := &liveBackEnd{backEnd: *b, client: newClient(server.URL, nil)}
	defer live.client.close()
	_, err = live.settle(t.Context(), 1)
	require.ErrorContains(t, err, "the back end: /stats: status 404")

	live, err = (*backEnd)(nil).start(t.Context(), "", nil, nil)
	require.NoError(t, err)
	assert.Empty(t, live.flags())
	live.stop()
}

// Other libraries leave out a scenario with a back end, and play the others.
func TestPeersLeaveOutBackEnds(t *testing.T) {
	s, argv := small(t, "serve")
	chi := peers()[0]
	apps := []variant{{name: chi.name, argv: argv, ask: askPeer, peer: &chi}}
	s.scenario.backEnd = &backEnd{capacity: 1, service: time.Second}
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{}, apps))
	assert.Empty(t, s.results)
	s.scenario.backEnd = nil
	require.NoError(t, s.all(t.Context(), options{limitBy: limitAuto}, progress{}, apps))
	assert.Len(t, s.results, 1)
}
