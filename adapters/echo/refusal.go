package echogate

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/gatehttp"
)

// answerable returns the error of a handler as error handlers want it: one that wraps
// a gate's refusal becomes what the middleware itself returns for one. An
// *echo.HTTPError is somebody's decision and stays.
func answerable(c echo.Context, err error) error {
	if rej := unanswered(err); rej != nil {
		return refusal(c, rej, gatehttp.FormatOf(c.Request()), nil)
	}
	return err
}

// unanswered returns the refusal in err, nil where there is none or where err says
// already how it is answered. Echo looks at the outermost error only.
func unanswered(err error) *gate.Rejection {
	if _, decided := err.(*echo.HTTPError); err == nil || decided { //nolint:errorlint // see above
		return nil
	}
	var rej *gate.Rejection // below the common way out, since it allocates
	errors.As(err, &rej)
	return rej
}

// refusal prepares the response for rej and returns the error that answers it.
func refusal(c echo.Context, rej *gate.Rejection, f gate.Format, custom func(echo.Context, *gate.Rejection) error) error {
	m := &message{rej: rej, format: f}
	he := &echo.HTTPError{Code: rej.Status(), Message: m, Internal: rej}
	if !prepare(c, rej) {
		return he
	}
	if custom != nil {
		if err := custom(c, rej); unanswered(err) == nil {
			return err
		}
	}
	m.name(c.Response())
	return he
}

// prepare sets the headers of a refusal and reports whether it is to be written.
func prepare(c echo.Context, rej *gate.Rejection) bool {
	res := c.Response()
	if res.Committed {
		return false
	}
	if !gatehttp.Prepare(res.Writer, c.Request(), rej) {
		res.Status, res.Committed = rej.Status(), true // so that nobody writes
		return false
	}
	return true
}

// formatOf returns the format to answer err in.
func formatOf(c echo.Context, err error) gate.Format {
	var he *echo.HTTPError
	if errors.As(err, &he) {
		if m, ok := he.Message.(*message); ok {
			return m.format
		}
	}
	return gatehttp.FormatOf(c.Request())
}

// message is the body of a refusal. Echo's error handler lets it format itself as
// JSON; one that prints it gets the text.
type message struct {
	rej    *gate.Rejection
	format gate.Format
	asJSON atomic.Bool // it was formatted, by whoever
}

// MarshalJSON returns the body.
func (m *message) MarshalJSON() ([]byte, error) {
	m.asJSON.Store(true)
	body, _ := m.rej.Render(m.format)
	return body, nil
}

// String returns the text of the refusal.
func (m *message) String() string { return m.rej.Error() }

// name gives an answer that is this message its own content type. Were it set before,
// Echo would leave it on whatever else an app's error handler writes.
func (m *message) name(res *echo.Response) {
	_, contentType := m.rej.Render(m.format)
	res.Before(func() {
		if h := res.Header(); m.asJSON.Load() && strings.HasPrefix(h.Get(echo.HeaderContentType), echo.MIMEApplicationJSON) {
			h.Set(echo.HeaderContentType, contentType)
		}
	})
}
