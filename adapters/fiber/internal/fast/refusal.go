package fast

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/headgate-go/headgate/core/gate"
)

// Check says what is wrong with a configuration, naming the field.
func Check(g gate.Gate, f gate.Format) error {
	v := reflect.ValueOf(g)
	switch {
	case !v.IsValid(), v.Kind() == reflect.Pointer && v.IsNil():
		return errors.New("Config.Gate is nil")
	case !v.Comparable():
		return fmt.Errorf("Config.Gate: %s cannot be compared with ==, so admitted requests could not be marked", v.Type())
	}
	if _, err := f.MarshalText(); err != nil {
		return fmt.Errorf("Config.Format: %w", err)
	}
	return nil
}

// gateFailed is the reason of a refusal whose gate did not say one.
const gateFailed gate.Reason = "gate_failed"

// Refusal returns what to answer to the error of a gate. Its own text may hold
// anything, so only a *[gate.Rejection] is told to the client.
func Refusal(ctx context.Context, err error) *gate.Rejection {
	var rej *gate.Rejection
	switch {
	case errors.As(err, &rej):
		return rej
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return &gate.Rejection{Reason: gate.Canceled, Gate: "gate"}
	}
	return &gate.Rejection{Reason: gateFailed, Gate: "gate"}
}

// Unanswered returns the refusal in err, nil where there is none or where a *fiber.Error
// in err says already how it is answered.
func Unanswered(err error) *gate.Rejection {
	if err == nil {
		return nil
	}
	var rej *gate.Rejection // below the common way out, since it allocates
	if !errors.As(err, &rej) || errors.As(err, new(*fiber.Error)) {
		return nil
	}
	return rej
}

// Refused is a refusal as ErrorHandlers get it.
type Refused struct {
	Format gate.Format // to answer it in
	told   fiber.Error
	rej    *gate.Rejection
}

// Error returns the text of the refusal.
func (r *Refused) Error() string { return r.told.Message }

// Unwrap lets errors.As find both.
func (r *Refused) Unwrap() []error { return []error{&r.told, r.rej} }

// Refuse answers rej by the app's ErrorHandler, unless custom has. It returns nil where
// the request is answered.
func Refuse(c *fiber.Ctx, rej *gate.Rejection, f gate.Format, custom func(*fiber.Ctx, *gate.Rejection) error) error {
	if !Prepare(c.Context(), rej) {
		return nil
	}
	if custom != nil {
		if err := custom(c, rej); Unanswered(err) == nil {
			return err
		}
	}
	err := &Refused{f, fiber.Error{Code: rej.Status(), Message: rej.Error()}, rej}
	if c.App().ErrorHandler(c, err) != nil {
		return c.SendStatus(fiber.StatusInternalServerError) // as Fiber does
	}
	if r := c.Response(); !r.IsBodyStream() && string(r.Body()) == err.Error() {
		Write(c.Context(), rej, f)
	}
	return nil
}

// Prepare sets the headers of a refusal, in place of those of another answer, and
// reports whether there is to be one: to a client that has left nothing is written.
func Prepare(rc *fasthttp.RequestCtx, rej *gate.Rejection) bool {
	h := &rc.Response.Header
	for _, name := range []string{fasthttp.HeaderETag, fasthttp.HeaderLastModified, fasthttp.HeaderRetryAfter} {
		h.Del(name)
	}
	rc.SetStatusCode(rej.Status())
	h.Set(gate.MarkerHeader, string(rej.Reason))
	if s := rej.RetryAfterSeconds(); s != "" {
		h.Set(fasthttp.HeaderRetryAfter, s)
	}
	if rej.Reason == gate.Canceled {
		hangUp(rc)
		return false
	}
	return true
}

// Write writes the body of a refusal.
func Write(rc *fasthttp.RequestCtx, rej *gate.Rejection, f gate.Format) {
	body, contentType := rej.Render(f)
	rc.SetStatusCode(rej.Status())
	rc.SetContentType(contentType)
	rc.SetBody(body)
}
