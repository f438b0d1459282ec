package gatetest

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/gate"
)

// Heartbeat checks an adapter's function of that name. app returns a handler that calls it
// with every when it has read the body; behind it, the handler calls wait, whose error is a refusal, and answers that:
// by the adapter's Refuse, or by returning the error where handlers return errors.
func Heartbeat(t *testing.T, app func(every time.Duration, wait func() error) http.Handler) {
	t.Helper()
	rej := refusal(gate.QueueTimeout, nil)
	body, contentType := rej.Render(gate.Problem)

	t.Run("in time", func(t *testing.T) {
		res, text := beats(t, app(time.Hour, func() error { return rej }), func(*bufio.Reader) {})
		if res.StatusCode != rej.Status() || strings.TrimSuffix(text, "\n") != string(body) || !strings.HasPrefix(res.Header.Get("Content-Type"), contentType) ||
			res.Header.Get(gate.MarkerHeader) != string(rej.Reason) {
			t.Errorf("the refusal came as %d %v %q", res.StatusCode, res.Header, text)
		}
	})
	t.Run("late", func(t *testing.T) {
		heard := make(chan struct{})
		res, text := beats(t, app(time.Millisecond, func() error { <-heard; return rej }), func(in *bufio.Reader) {
			defer close(heard)
			for range 3 {
				if comment, err := in.ReadString('\n'); comment != ": queued\n" {
					t.Errorf("read %q, %v", comment, err)
				}
			}
		})
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("the stream began as %d %v", res.StatusCode, res.Header)
		}
		text = strings.ReplaceAll(text, ": queued\n", "")
		if want := "event: error\ndata: " + string(body) + "\n\n"; strings.ReplaceAll(text, "data: \n", "") != want {
			t.Errorf("the refusal came as %q, want %q", text, want)
		}
	})
}

// beats sends h a request and returns the answer: its body from where listen, which is
// called at the head, has left off.
func beats(t *testing.T, h http.Handler, listen func(*bufio.Reader)) (*http.Response, string) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	listen(in)
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}
