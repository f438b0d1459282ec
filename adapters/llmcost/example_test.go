package llmcost_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-go/headgate/adapters/llmcost"
	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/lanes"
)

func ExamplePrice() {
	fmt.Println(llmcost.Price([]byte(`{"messages":[{"role":"user","content":"Hello"}]}`)))
	fmt.Println(llmcost.Price([]byte(`{"messages":[{"role":"user","content":"Hello"}],"stream":true}`)))
	fmt.Println(llmcost.Price([]byte(`{"input":"Hello","max_output_tokens":16384}`)))
	fmt.Println(llmcost.Price([]byte(`{"contents":[{}],"generationConfig":{"candidateCount":8}}`)))
	fmt.Println(llmcost.Price(bytes.Repeat([]byte("["), 1<<20))) // hostile
	// Output:
	// 6
	// 5
	// 22
	// 13
	// 1000
}

// What the body does not say is added before it is priced.
func ExampleFeatures() {
	const path = "/v1beta/models/gemini:streamGenerateContent"
	f, err := llmcost.Features([]byte(`{"contents":[{"parts":[{"text":"Hello"}]}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	f.Stream = strings.HasSuffix(path, ":streamGenerateContent")
	if f.Tokens == 0 {
		f.Tokens = 8192 // which this model may answer with
	}
	fmt.Println(f.Messages, f.Tokens, f.Stream, lanes.Price(f))
	// Output: 1 8192 true 13
}

// The errors tell what is wrong, and the features with them cost the most there is.
func ExampleFeatures_errors() {
	for _, body := range []string{`{"max_tokens":NaN}`, strings.Repeat("[", 1000), "[1" + strings.Repeat(",1", 100_000) + "]"} {
		f, err := llmcost.Features([]byte(body))
		fmt.Println(lanes.Price(f), errors.Is(err, llmcost.ErrNotJSON), errors.Is(err, llmcost.ErrTooComplex), err)
	}
	// Output:
	// 1000 true false llmcost: the body is not JSON
	// 1000 false true llmcost: the body is too complex: nested deeper than 128
	// 1000 false true llmcost: the body is too complex: more than 65536 values
}

// A handler reads the body, asks the gate of its tenants by what is in it, and goes on.
func Example() {
	c := lanes.DefaultConfig()
	c.Mode = gate.Enforce
	c.MaxLimit = 100
	tenants, err := lanes.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tenants.Close()

	chat := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if httpgate.Refuse(w, r, err) {
			return
		}
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		r, err = httpgate.Acquire(w, r, tenants, gate.Request{Cost: llmcost.Price(body)})
		if httpgate.Refuse(w, r, err) {
			return
		}
		defer httpgate.Release(r, tenants)
		fmt.Fprint(w, "runs at a cost of ", tenants.Snapshot().InflightCost) // here the body would be sent on
	}

	for _, body := range []string{`{"messages":[{"content":"Hello"}],"max_tokens":4000}`, `{"messages":[{"content":"Hello"}],"max_tokens":4e9}`} {
		answer := httptest.NewRecorder()
		chat(answer, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
		if answer.Code == http.StatusOK {
			fmt.Println(answer.Code, answer.Body)
		} else {
			fmt.Println(answer.Code, answer.Header().Get(gate.MarkerHeader))
		}
	}
	fmt.Println(tenants.Snapshot().InflightCost)
	// Output:
	// 200 runs at a cost of 10
	// 413 cost_exceeds_limit
	// 0
}

// The targets of a fan-out are asked for at the price of the bodies that they would get.
func ExamplePrice_probe() {
	c := lanes.DefaultConfig()
	c.Mode, c.VirtualLanes = gate.Enforce, true
	l, err := lanes.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	r, err = httpgate.Acquire(httptest.NewRecorder(), r, l, gate.Request{Cost: 6, Flow: "tenant-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer httpgate.Release(r, l)

	fmt.Println(l.Probe(httpgate.Context(r),
		llmcost.Price([]byte(`{"messages":[{}],"max_tokens":1000}`)),
		llmcost.Price([]byte(`{"messages":[{}],"max_tokens":64000}`))))
	// Output: [true false]
}
