package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/core/pressure"
)

// Config configures every gate. Values are literal; start from [DefaultConfig].
// YAML decodes onto it, with field names in snake_case.
type Config struct {
	// Admission configures byte admission. Its Pressure is Headgate's Memory, whatever
	// is in the field.
	Admission admission.Config `yaml:"admission"`
	// Lanes configures the tenants' lanes. Its Pressure is Memory's, whatever is in the field.
	Lanes lanes.Config `yaml:"lanes"`
	// Inflight configures the limiter of outbound calls.
	Inflight inflight.Config `yaml:"inflight"`
	// Pressure configures the watch over the process's memory.
	Pressure pressure.Config `yaml:"pressure"`
	// Logger gets the line that Open writes, and the lines of every gate that has no
	// Logger of its own. Default nil: slog.Default().
	Logger *slog.Logger `yaml:"-"`
}

// DefaultConfig returns every gate's own defaults: bytes enforce, tenants' lanes keep
// books of what they would do, outbound calls are off until a limit is set.
func DefaultConfig() Config {
	return Config{
		Admission: admission.DefaultConfig(), Lanes: lanes.DefaultConfig(), Inflight: inflight.DefaultConfig(), Pressure: pressure.DefaultConfig(),
	}
}

// Validate returns an error that names the first field that is out of range, or
// nil. Open and Reconfigure call it.
func (c Config) Validate() error {
	if err := c.Admission.Validate(); err != nil {
		return err
	}
	if err := c.Lanes.Validate(); err != nil {
		return err
	}
	if err := c.Inflight.Validate(); err != nil {
		return err
	}
	return c.Pressure.Validate()
}

// logging gives a logger to those who have none.
func (c Config) logging() Config {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Admission.Logger = cmp.Or(c.Admission.Logger, c.Logger)
	c.Lanes.Logger = cmp.Or(c.Lanes.Logger, c.Logger)
	c.Inflight.Logger = cmp.Or(c.Inflight.Logger, c.Logger)
	c.Pressure.Logger = cmp.Or(c.Pressure.Logger, c.Logger)
	return c
}

// Headgate holds the gates of a process. All methods are safe for concurrent use.
type Headgate struct {
	// Memory knows how close the process is to its memory limit; Bytes goes by it. Config.Pressure
	// configures it.
	Memory *pressure.Monitor
	// Bytes admits request bodies, as Config.Admission says.
	Bytes *admission.Budget
	// Tenants admits requests in their tenants' lanes, behind Bytes and authentication, as
	// Config.Lanes says.
	Tenants *lanes.Controller
	// Outbound admits calls to back ends, as Config.Inflight says.
	Outbound *inflight.Limiter
}

// Open opens every gate and logs one line that says which gate does what. The
// error names the field of c that is wrong; nothing is open then. Shutdown closes
// what Open opened.
func Open(c Config) (*Headgate, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.logging()
	memory, err := pressure.New(c.Pressure)
	if err != nil {
		return nil, err
	}
	c.Admission.Pressure = memory
	bytes, err := admission.New(c.Admission)
	if err != nil {
		memory.Close()
		return nil, err
	}
	c.Lanes.Pressure = memory
	tenants, err := lanes.New(c.Lanes)
	if err != nil {
		bytes.Close()
		memory.Close()
		return nil, err
	}
	outbound, err := inflight.New(c.Inflight)
	if err != nil {
		tenants.Close()
		bytes.Close()
		memory.Close()
		return nil, err
	}
	h := &Headgate{Memory: memory, Bytes: bytes, Tenants: tenants, Outbound: outbound}
	s := bytes.Snapshot()
	c.Logger.Info("headgate is open",
		slog.String("admission", s.Mode.String()),
		slog.String("max_inflight_bytes", gate.Size(s.MaxInflightBytes).String()),
		slog.String("budget_source", s.BudgetSource),
		slog.Duration("admission_queue_timeout", c.Admission.QueueTimeout),
		slog.String("lanes", c.Lanes.Mode.String()),
		slog.Bool("virtual_lanes", c.Lanes.VirtualLanes),
		slog.String("inflight", outboundMode(c.Inflight)),
		slog.Int("max_inflight", c.Inflight.MaxInflight),
		slog.Duration("inflight_queue_timeout", c.Inflight.QueueTimeout))
	return h, nil
}

// Reconfigure applies c to every gate, or to none: on an error, which names the
// wrong field, nothing has changed.
func (h *Headgate) Reconfigure(c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c = c.logging()
	// All have been validated, and nothing else can fail.
	c.Lanes.Pressure = h.Memory
	return errors.Join(h.Memory.Reconfigure(c.Pressure), h.Bytes.Reconfigure(c.Admission),
		h.Tenants.Reconfigure(c.Lanes), h.Outbound.Reconfigure(c.Inflight))
}

// Snapshot is the state of every gate, as JSON under its package's name.
type Snapshot struct {
	// What each gate says of itself; see the type.
	Admission admission.Snapshot `json:"admission"`
	Pressure  pressure.Snapshot  `json:"pressure"`
	Lanes     lanes.Snapshot     `json:"lanes"`
	Inflight  inflight.Snapshot  `json:"inflight"`
}

// Snapshot reads the state of every gate. It reads memory only.
func (h *Headgate) Snapshot() Snapshot {
	return Snapshot{
		Admission: h.Bytes.Snapshot(), Pressure: h.Memory.Snapshot(), Lanes: h.Tenants.Snapshot(), Inflight: h.Outbound.Snapshot(),
	}
}

// Shutdown refuses everyone who waits for bytes or in a tenant's lane and every later
// request, calls stop (an http.Server's Shutdown, for example; nil = nothing to stop), and
// waits until every lease of theirs is back; only then it closes Outbound, so that requests that
// were admitted can finish, waits for its slots, and ends the watch over the memory. ctx bounds all of it and is
// handed to stop. The error joins those of stop and of leases that did not come back
// in time. Calling it again is
// the same as calling it once, but for stop.
func (h *Headgate) Shutdown(ctx context.Context, stop func(context.Context) error) error {
	h.Bytes.Close()
	h.Tenants.Close()
	var errs []error
	if stop != nil {
		errs = append(errs, stop(ctx))
	}
	if err := h.Bytes.Drain(ctx); err != nil {
		errs = append(errs, fmt.Errorf("admission: leases are still out: %w", err))
	}
	if err := h.Tenants.Drain(ctx); err != nil {
		errs = append(errs, fmt.Errorf("lanes: leases are still out: %w", err))
	}
	h.Outbound.Close()
	if err := h.Outbound.Drain(ctx); err != nil {
		errs = append(errs, fmt.Errorf("inflight: slots are still held: %w", err))
	}
	if err := h.closeMemory(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// closeMemory ends the watch over the memory. Where that waits for a sample that waits for
// the file system, or for a collection, it goes on by itself when ctx has ended.
func (h *Headgate) closeMemory(ctx context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		h.Memory.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-closed:
		return nil
	case <-time.After(atLeast): // ctx may have ended long before
		return fmt.Errorf("pressure: the last sample is still being taken: %w", ctx.Err())
	}
}

// atLeast is what closing the memory's watch may take however late it is.
const atLeast = 100 * time.Millisecond

// outboundMode is what the log calls the mode of the outbound limiter.
func outboundMode(c inflight.Config) string {
	if c.MaxInflight == 0 && len(c.Lanes) == 0 {
		return gate.Off.String()
	}
	return c.Mode.String()
}
