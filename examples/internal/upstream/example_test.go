package upstream_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate-go/headgate/examples/internal/upstream"
)

func ExampleNew() {
	config := upstream.DefaultConfig()
	config.Service = time.Millisecond
	config.Jitter = 0
	backend, err := upstream.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer backend.Close()
	srv := httptest.NewServer(backend)
	defer srv.Close()

	resp, err := http.Post(srv.URL+"/v1/messages", "application/json", strings.NewReader(`{"model": "m", "max_tokens": 5}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	_, text, _ := strings.Cut(string(body), `"text":`)
	text, _, _ = strings.Cut(text, "}")
	fmt.Println(resp.Status, text, err)

	stats := backend.Stats()
	fmt.Println(stats.Completed, "completed, at most", stats.MaxConcurrent, "at once,", stats.WorkMS, "ms of work")
	// Output:
	// 200 OK "Every call waits its turn" <nil>
	// 1 completed, at most 1 at once, 1 ms of work
}
