package httpgate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
)

// openBytes opens the byte gate of the examples: bodies of 1 KiB at most.
func openBytes() *admission.Budget {
	c := admission.DefaultConfig()
	c.HardMaxBodyBytes = 1 << 10
	b, err := admission.New(c)
	if err != nil {
		panic(err)
	}
	return b
}

// post sends n bytes to h and prints how it was answered.
func post(h http.Handler, path string, n int) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(strings.Repeat("x", n))))
	fmt.Println(strings.TrimSpace(fmt.Sprint(answer.Code, " ", answer.Header().Get(gate.MarkerHeader))))
}

// One line puts the byte budget in front of a service.
func ExampleNew() {
	bytes := openBytes()
	defer bytes.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if httpgate.Refuse(w, r, err) {
			return
		}
		_, _ = w.Write(body)
	})
	app := httpgate.New(bytes)(mux)

	post(app, "/echo", 100)
	post(app, "/echo", 2000)
	// Output:
	// 200
	// 413 payload_too_large
}

// Health checks pass unasked, refusals have the shape that OpenAI's clients read,
// and the access log sees each decision.
func ExampleWithConfig() {
	bytes := openBytes()
	defer bytes.Close()
	app := httpgate.WithConfig(httpgate.Config{
		Gate:   bytes,
		Skip:   func(r *http.Request) bool { return r.URL.Path == "/livez" },
		Format: gate.OpenAI,
		OnDecision: func(d httpgate.Decision) {
			fmt.Println("log:", d.Method, d.Route, d.Err)
		},
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	post(app, "/livez", 0)
	post(app, "/v1/chat/completions", 100)
	post(app, "/v1/chat/completions", 2000)
	// Output:
	// 200
	// log: POST unmatched <nil>
	// 200
	// log: POST unmatched refused locally by admission: payload too large (limit 1024 bytes): send a smaller body, or raise HardMaxBodyBytes
	// 413 payload_too_large
}

// The body of a refusal can be the service's own.
func ExampleConfig_onRefuse() {
	bytes := openBytes()
	defer bytes.Close()
	app := httpgate.WithConfig(httpgate.Config{
		Gate: bytes,
		OnRefuse: func(w http.ResponseWriter, _ *http.Request, rej *gate.Rejection) bool {
			http.Error(w, "come back later, or with less: "+string(rej.Reason), rej.Status())
			return true
		},
	})(http.NotFoundHandler())

	post(app, "/", 2000)
	// Output: 413 payload_too_large
}

// A handler that knows what a request is worth asks a gate by itself.
func ExampleAcquire() {
	work := openBytes()
	defer work.Close()
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := httpgate.Acquire(w, r, work, gate.Request{Flow: "tenant-7"})
		if httpgate.Refuse(w, r, err) {
			return
		}
		defer httpgate.Release(r, work)
		_, _ = io.Copy(io.Discard, r.Body)
	})

	post(app, "/", 100)
	post(app, "/", 2000)
	// Output:
	// 200
	// 413 payload_too_large
}

// A handler that has passed the body on gives its bytes back before it is done.
func ExampleRelease() {
	bytes := openBytes()
	defer bytes.Close()
	app := httpgate.New(bytes)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Println(bytes.Snapshot().InflightBytes)
		httpgate.Release(r, bytes)
		fmt.Println(bytes.Snapshot().InflightBytes)
		// a long answer follows
	}))

	post(app, "/", 100)
	// Output:
	// 100
	// 0
	// 200
}

// Errors that are no gate's stay the handler's.
func ExampleRefuse() {
	bytes := openBytes()
	defer bytes.Close()
	app := httpgate.New(bytes)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if err == nil {
			err = errors.New("no such model")
		}
		if httpgate.Refuse(w, r, err) {
			return
		}
		http.Error(w, err.Error(), http.StatusBadRequest)
	}))

	post(app, "/", 100)
	// Output: 400
}

// Work that a handler starts inherits the request's leases, class and flow.
func ExampleContext() {
	bytes := openBytes()
	defer bytes.Close()
	app := httpgate.New(bytes)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, held := gate.LeaseOf(httpgate.Context(r), bytes)
		fmt.Println(held)
	}))

	post(app, "/", 100)
	// Output:
	// true
	// 200
}

// Whatever asks a gate behind this middleware asks as bulk work.
func ExampleSetClass() {
	bulk := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, httpgate.SetClass(r, gate.Bulk))
		})
	}
	app := bulk(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(gate.Request{}.In(r.Context()).Class)
	}))

	post(app, "/reindex", 0)
	// Output:
	// bulk
	// 200
}

// A whole service: bytes are admitted before anybody knows who is asking,
// authentication puts the tenant into the context, and shutdown refuses who waits,
// stops the server and waits for who runs.
func Example() {
	c := headgate.DefaultConfig()
	c.Logger = slog.New(slog.DiscardHandler)
	hg, err := headgate.Open(c)
	if err != nil {
		fmt.Println(err)
		return
	}

	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tenant, ok := map[string]string{"Bearer key-of-7": "tenant-7"}[r.Header.Get("Authorization")]
			if !ok {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r.WithContext(gate.WithFlow(r.Context(), tenant, 1)))
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if httpgate.Refuse(w, r, err) {
			return
		}
		_, _ = w.Write(body)
	})
	srv := &http.Server{Handler: httpgate.New(hg.Bytes)(authenticate(mux)), ReadHeaderTimeout: 10 * time.Second}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = srv.Serve(ln) }()

	req, _ := http.NewRequest(http.MethodPost, "http://"+ln.Addr().String()+"/echo", strings.NewReader("hello"))
	req.Header.Set("Authorization", "Bearer key-of-7")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(resp.StatusCode, string(body))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(hg.Shutdown(ctx, srv.Shutdown))
	// Output:
	// 200 hello
	// <nil>
}
