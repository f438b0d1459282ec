package echogate_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	echogate "github.com/headgate-go/headgate/adapters/echo"
)

// The client of a stream hears that it is queued until there is a slot for its call.
func ExampleHeartbeat() {
	slot := make(chan struct{}) // taken, for now
	e := echo.New()
	e.GET("/", func(c echo.Context) error {
		return echogate.Heartbeat(c, time.Millisecond, func() error {
			<-slot
			return c.Blob(http.StatusOK, "text/event-stream", []byte("data: hello\n\n"))
		})
	})
	srv := httptest.NewServer(e)
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
