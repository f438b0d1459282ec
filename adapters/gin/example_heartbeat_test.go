package gingate_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate-go/headgate/adapters/gin"
)

// The client of a stream hears that it is queued until there is a slot for its call.
func ExampleHeartbeat() {
	slot := make(chan struct{}) // taken, for now
	r := gin.New()
	r.GET("/", func(c *gin.Context) {
		gingate.Heartbeat(c, time.Millisecond, func() {
			<-slot
			c.Data(http.StatusOK, "text/event-stream", []byte("data: hello\n\n"))
		})
	})
	srv := httptest.NewServer(r)
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	in.Scan()
	fmt.Println(in.Text())
	close(slot)
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "data:") {
			fmt.Println(in.Text())
		}
	}
	// Output:
	// : queued
	// data: hello
}
