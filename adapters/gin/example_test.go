package gingate_test

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

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate-go/headgate/adapters/gin"
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

// upload sends n bytes to h and prints how it was answered.
func upload(h http.Handler, path string, n int) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, strings.NewReader(strings.Repeat("x", n))))
	fmt.Println(strings.TrimSpace(fmt.Sprint(answer.Code, " ", answer.Header().Get(gate.MarkerHeader))))
}

// One line puts the byte budget in front of a service.
func ExampleNew() {
	bytes := openBytes()
	defer bytes.Close()
	r := gin.New()
	r.Use(gin.Recovery(), gingate.New(bytes))
	r.POST("/echo", func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if gingate.Refuse(c, err) {
			return
		}
		c.Data(http.StatusOK, "text/plain", body)
	})

	upload(r, "/echo", 100)
	upload(r, "/echo", 2000)
	// Output:
	// 200
	// 413 payload_too_large
}

// Health checks pass unasked, refusals have the shape that OpenAI's clients read,
// and the access log sees each decision with the route that matched.
func ExampleWithConfig() {
	bytes := openBytes()
	defer bytes.Close()
	r := gin.New()
	r.Use(gingate.WithConfig(gingate.Config{
		Gate:   bytes,
		Skip:   func(c *gin.Context) bool { return c.FullPath() == "/livez" },
		Format: gate.OpenAI,
		OnDecision: func(d gingate.Decision) {
			fmt.Println("log:", d.Method, d.Route, d.Err)
		},
	}))
	r.POST("/livez", func(*gin.Context) {})
	r.POST("/models/:model", func(*gin.Context) {})

	upload(r, "/livez", 0)
	upload(r, "/models/m1", 100)
	upload(r, "/models/m2", 2000)
	upload(r, "/nowhere", 100)
	// Output:
	// 200
	// log: POST /models/:model <nil>
	// 200
	// log: POST /models/:model refused locally by admission: payload too large (limit 1024 bytes): send a smaller body, or raise HardMaxBodyBytes
	// 413 payload_too_large
	// log: POST unmatched <nil>
	// 404
}

// The body of a refusal can be the service's own.
func ExampleConfig_onRefuse() {
	bytes := openBytes()
	defer bytes.Close()
	r := gin.New()
	r.Use(gingate.WithConfig(gingate.Config{
		Gate: bytes,
		OnRefuse: func(c *gin.Context, rej *gate.Rejection) bool {
			c.JSON(rej.Status(), gin.H{"error": "come back later, or with less: " + string(rej.Reason)})
			return true
		},
	}))
	r.POST("/", func(*gin.Context) {})

	upload(r, "/", 2000)
	// Output: 413 payload_too_large
}

// A handler that knows what a request is worth asks a gate by itself.
func ExampleAcquire() {
	work := openBytes()
	defer work.Close()
	r := gin.New()
	r.POST("/", func(c *gin.Context) {
		err := gingate.Acquire(c, work, gate.Request{Flow: "tenant-7"})
		if gingate.Refuse(c, err) {
			return
		}
		defer gingate.Release(c, work)
		_, _ = io.Copy(io.Discard, c.Request.Body)
	})

	upload(r, "/", 100)
	upload(r, "/", 2000)
	// Output:
	// 200
	// 413 payload_too_large
}

// A handler that has passed the body on gives its bytes back before it is done.
func ExampleRelease() {
	bytes := openBytes()
	defer bytes.Close()
	r := gin.New()
	r.Use(gingate.New(bytes))
	r.POST("/", func(c *gin.Context) {
		_, _ = io.Copy(io.Discard, c.Request.Body)
		fmt.Println(bytes.Snapshot().InflightBytes)
		gingate.Release(c, bytes)
		fmt.Println(bytes.Snapshot().InflightBytes)
		// a long answer follows
	})

	upload(r, "/", 100)
	// Output:
	// 100
	// 0
	// 200
}

// Errors that are no gate's stay the handler's.
func ExampleRefuse() {
	bytes := openBytes()
	defer bytes.Close()
	r := gin.New()
	r.Use(gingate.New(bytes))
	r.POST("/", func(c *gin.Context) {
		_, err := io.ReadAll(c.Request.Body)
		if err == nil {
			err = errors.New("no such model")
		}
		if gingate.Refuse(c, err) {
			return
		}
		c.String(http.StatusBadRequest, err.Error())
	})

	upload(r, "/", 100)
	// Output: 400
}

// Work that a handler starts inherits the request's leases, class and flow. With
// c.Copy it may go on when the handler is done, as Gin wants it.
func ExampleContext() {
	bytes := openBytes()
	defer bytes.Close()
	r := gin.New()
	r.Use(gingate.New(bytes))
	r.POST("/", func(c *gin.Context) {
		_, held := gate.LeaseOf(gingate.Context(c), bytes)
		fmt.Println(held)
	})

	upload(r, "/", 100)
	// Output:
	// true
	// 200
}

// Whatever asks a gate behind this middleware asks as bulk work.
func ExampleSetClass() {
	r := gin.New()
	r.Use(func(c *gin.Context) { gingate.SetClass(c, gate.Bulk) })
	r.POST("/reindex", func(c *gin.Context) {
		fmt.Println(gate.Request{}.In(gingate.Context(c)).Class)
	})

	upload(r, "/reindex", 0)
	// Output:
	// bulk
	// 200
}

// A whole service: bytes are admitted before anybody knows who is asking,
// authentication puts the tenant into the context, and shutdown refuses who waits,
// stops the server and waits for who runs.
func Example() {
	config := headgate.DefaultConfig()
	config.Logger = slog.New(slog.DiscardHandler)
	hg, err := headgate.Open(config)
	if err != nil {
		fmt.Println(err)
		return
	}

	authenticate := func(c *gin.Context) {
		tenant, ok := map[string]string{"Bearer key-of-7": "tenant-7"}[c.GetHeader("Authorization")]
		if !ok {
			c.AbortWithStatus(http.StatusUnauthorized)
			return
		}
		c.Request = c.Request.WithContext(gate.WithFlow(gingate.Context(c), tenant, 1))
	}
	r := gin.New()
	r.Use(gin.Recovery(), gingate.New(hg.Bytes), authenticate)
	r.POST("/echo", func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if gingate.Refuse(c, err) {
			return
		}
		c.Data(http.StatusOK, "text/plain", body)
	})
	srv := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = srv.Serve(ln) }()

	for _, key := range []string{"Bearer key-of-7", "Bearer made up"} {
		req, _ := http.NewRequest(http.MethodPost, "http://"+ln.Addr().String()+"/echo", strings.NewReader("hello"))
		req.Header.Set("Authorization", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body))))
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(hg.Shutdown(ctx, srv.Shutdown))
	// Output:
	// 200 hello
	// 401
	// <nil>
}
