package httpgate_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	httpgate "github.com/headgate-go/headgate/adapters/nethttp"
)

// The client of a stream hears that it is queued until there is a slot for its call.
func ExampleHeartbeat() {
	slot := make(chan struct{}) // taken, for now
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpgate.Heartbeat(w, r, time.Millisecond, func(w http.ResponseWriter) {
			<-slot
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: hello\n\n")
		})
	}))
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
