package clientwrap_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/headgate-go/headgate/clientwrap"
	"github.com/stretchr/testify/assert"
)

// free is a base that allocates nothing: it always gives the same response.
type free struct {
	resp http.Response
	body io.ReadCloser
}

func newFree(body io.ReadCloser) *free {
	return &free{resp: http.Response{StatusCode: http.StatusOK}, body: body}
}

func (f *free) RoundTrip(*http.Request) (*http.Response, error) {
	f.resp.Body = f.body
	return &f.resp, nil
}

// empty is a body that is at its end.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) Close() error             { return nil }

// exchange sends req, reads the body to its end and closes it.
func exchange(rt http.RoundTripper, req *http.Request, buf []byte) error {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	return resp.Body.Close()
}

// An exchange allocates the body and what gate.Observe needs, and three more for
// context.AfterFunc where the context can end.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates too")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		body io.ReadCloser
		c    clientwrap.Config
		most float64
	}{
		"no body":           {ctx, http.NoBody, clientwrap.Config{}, 1},
		"at headers":        {ctx, empty{}, clientwrap.Config{ReleaseAtHeaders: true}, 1},
		"without an end":    {context.Background(), empty{}, clientwrap.Config{}, 2},
		"with a context":    {ctx, empty{}, clientwrap.Config{}, 5},
		"lane of one's own": {ctx, http.NoBody, clientwrap.Config{Lane: func(*http.Request) string { return "x" }}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, limit := range []int{0, 8} {
				l := slots(t, limit)
				rt := clientwrap.NewTransport(newFree(test.body), l, test.c)
				req := request(t, test.ctx, nil)
				buf := make([]byte, 16)
				n := testing.AllocsPerRun(1000, func() {
					if err := exchange(rt, req, buf); err != nil {
						t.Fatal(err)
					}
				})
				assert.LessOrEqual(t, n, test.most)
			}
		})
	}
}
