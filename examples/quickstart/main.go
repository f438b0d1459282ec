// Command quickstart is the smallest service behind a byte budget. The first
// screen of the README shows it.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headgate-go/headgate/adapters/nethttp"
	headgate "github.com/headgate-go/headgate/core"
)

func main() {
	hg, err := headgate.Open(headgate.DefaultConfig())
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // at most what the budget has room for
		if httpgate.Refuse(w, r, err) {
			return // too large, too slow, or no room to grow: answered as such
		}
		if err != nil {
			http.Error(w, "the body ended early", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%d bytes\n", len(body))
	})
	srv := &http.Server{Addr: ":8080", Handler: httpgate.New(hg.Bytes)(mux)} // the one line

	go func() {
		if err := srv.ListenAndServe(); err != http.ErrServerClosed {
			log.Fatal(err)
		}
	}()
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	<-stop.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := hg.Shutdown(ctx, srv.Shutdown); err != nil {
		log.Print(err)
	}
}
