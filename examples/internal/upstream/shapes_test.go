package upstream

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

var dialects = map[string]dialect{
	"/v1/chat/completions": chat{},
	"/v1/messages":         messages{},
	"/v1/responses":        responses{},
}

// What goes over the wire, byte for byte, for each API, whole and streamed.
func TestWireFormat(t *testing.T) {
	for name, q := range map[string]request{
		"natural": {Model: "m-1", inputTokens: 7},
		"cut":     {Model: "m-1", inputTokens: 7, MaxTokens: new(int64)},
		"choices": {Model: "m-1", inputTokens: 7, N: new(int64)},
	} {
		a := &answer{id: "000000000000000000000042", created: 1_700_000_000, request: q, words: []string{"Every", " call", "."}}
		switch name {
		case "cut":
			*q.MaxTokens = 3
			a.cut = true
			a.request.StreamOptions.IncludeUsage = true
		case "choices":
			*q.N = 2
		}
		for path, d := range dialects {
			file := strings.ReplaceAll(strings.TrimPrefix(path, "/v1/"), "/", "-") + "-" + name
			if name == "choices" && path != "/v1/chat/completions" {
				continue // the others have no n
			}
			whole := httptest.NewRecorder()
			writeJSON(whole, http.StatusOK, d.whole(a))
			golden(t, file+".json", whole.Body.String())

			stream := httptest.NewRecorder()
			events := d.open(a)
			for i := range a.words {
				events = append(events, d.token(a, i)...)
			}
			if err := send(stream, append(events, d.close(a)...)); err != nil {
				t.Fatal(err)
			}
			golden(t, file+".sse", stream.Body.String())
		}
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", file, got, want)
	}
}

func TestFailureShapes(t *testing.T) {
	f := func(status int) failure { return failure{status: status, message: "why", param: "p", code: "c"} }
	for status, kinds := range map[int][2]string{
		400: {"invalid_request_error", "invalid_request_error"},
		404: {"invalid_request_error", "not_found_error"},
		405: {"invalid_request_error", "invalid_request_error"},
		413: {"invalid_request_error", "request_too_large"},
		429: {"requests", "rate_limit_error"},
		503: {"server_error", "api_error"},
	} {
		openai := `{"error":{"message":"why","type":"` + kinds[0] + `","param":"p","code":"c"}}`
		anthropic := `{"type":"error","error":{"type":"` + kinds[1] + `","message":"why"},"request_id":"req_1"}`
		for _, test := range []struct {
			d    dialect
			want string
		}{{chat{}, openai}, {responses{}, openai}, {messages{}, anthropic}} {
			got, err := json.Marshal(test.d.failure(f(status), "req_1"))
			if err != nil || string(got) != test.want {
				t.Errorf("%T, %d: %s, want %s (%v)", test.d, status, got, test.want, err)
			}
		}
	}
	got, err := json.Marshal(chat{}.failure(failure{status: 400, message: "why"}, ""))
	if want := `{"error":{"message":"why","type":"invalid_request_error","param":null,"code":null}}`; string(got) != want {
		t.Errorf("%s, want %s (%v)", got, want, err)
	}
}

func TestParse(t *testing.T) {
	for body, want := range map[string]string{ // "" accepts
		`{"model":"m"}`:                   "",
		`{"model":"m","messages": [ ] }`:  "",
		`{"model":"m","messages":null}`:   "",
		`{"model":"m","input": "x"}`:      "",
		`{"model":"m","input":[{}]}`:      "",
		`{"model":"m","max_tokens":1}`:    "",
		`{"model":"m","max_tokens":null}`: "",
		`{"model":"m","max_tokens":1e3}`:  "max_tokens: want int64, got number 1e3",
		`{"model":"m","stream":null}`:     "",
		`{"model":"m","stream_options":null,"n":128,"tools":[{"x":1}],"metadata":{}}`: "",

		``:                                    "the request body is not a JSON object: ",
		`{`:                                   "the request body is not a JSON object: ",
		`{"model":"m"} x`:                     "the request body is not a JSON object: ",
		`[]`:                                  "the request body is not a JSON object: ",
		`"m"`:                                 "the request body is not a JSON object: ",
		`null`:                                "model: required",
		`{}`:                                  "model: required",
		`{"model":""}`:                        "model: required",
		`{"model":1}`:                         "model: want string, got number",
		`{"model":"m","stream":"yes"}`:        "stream: want bool, got string",
		`{"model":"m","messages":"x"}`:        "messages: want an array",
		`{"model":"m","messages":{}}`:         "messages: want an array",
		`{"model":"m","input":1}`:             "input: want a string or an array",
		`{"model":"m","max_tokens":0}`:        "max_tokens: 0, want 1 or more",
		`{"model":"m","max_tokens":-5}`:       "max_tokens: -5, want 1 or more",
		`{"model":"m","max_tokens":1.5}`:      "max_tokens: want int64, got number 1.5",
		`{"model":"m","max_output_tokens":0}`: "max_output_tokens: 0, want 1 or more",
		`{"model":"m","max_completion_tokens":0}`:      "max_completion_tokens: 0, want 1 or more",
		`{"model":"m","n":0}`:                          "n: 0, want 1 to 128",
		`{"model":"m","n":129}`:                        "n: 129, want 1 to 128",
		`{"model":"` + strings.Repeat("m", 257) + `"}`: "model: 257 bytes, at most 256",
	} {
		q, err := parse([]byte(body))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", body, err)
		case want == "" && q.inputTokens != int64(len(body)+3)/4:
			t.Errorf("%s: %d input tokens", body, q.inputTokens)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s: error %v, want %s", body, err, want)
		}
	}
}

func TestTheTightestBoundCounts(t *testing.T) {
	s := &Server{tokens: 16}
	for body, want := range map[string]struct {
		tokens int
		cut    bool
	}{
		`{"model":"m"}`:                   {16, false},
		`{"model":"m","max_tokens":16}`:   {16, false},
		`{"model":"m","max_tokens":1000}`: {16, false},
		`{"model":"m","max_tokens":15}`:   {15, true},
		`{"model":"m","max_tokens":9,"max_completion_tokens":4,"max_output_tokens":5}`: {4, true},
		`{"model":"m","max_tokens":9223372036854775807}`:                               {16, false},
	} {
		q, err := parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if a := s.newAnswer("req_1", q); len(a.words) != want.tokens || a.cut != want.cut {
			t.Errorf("%s: %d tokens, cut %v", body, len(a.words), a.cut)
		}
	}
}

// Whatever is accepted can be answered in each shape, in valid JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true,"messages":[],"max_tokens":3,"n":2,"stream_options":{"include_usage":true}}`))
	f.Add([]byte(`{"model":"\u2028\ud800","input":"x","max_output_tokens":1}`))
	f.Add([]byte(`{"model":`))
	s := &Server{tokens: 3}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parse(body)
		if err != nil {
			return
		}
		a := s.newAnswer("req_1", q)
		for _, d := range dialects {
			events := append(append(d.open(a), d.token(a, 0)...), d.close(a)...)
			w := httptest.NewRecorder()
			if err := send(w, events); err != nil {
				t.Fatal(err)
			}
			frames := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
			if len(frames) != len(events) {
				t.Fatalf("%d frames of %d events", len(frames), len(events))
			}
			for _, frame := range frames {
				_, data, ok := strings.Cut(frame, "data: ")
				if !ok || data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Fatalf("%T: frame %q", d, frame)
				}
			}
		}
	})
}
