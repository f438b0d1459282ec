package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/core/pressure"
)

// config is what the configuration file holds: headgate's keys and a few of the
// program's own.
type config struct {
	Admission admission.Config `yaml:"admission"`
	Pressure  pressure.Config  `yaml:"pressure"`
	Lanes     lanes.Config     `yaml:"lanes"`
	Inflight  outbound         `yaml:"inflight"`
	Upstream  timed            `yaml:"upstream"`
	// LogLevel is debug, info, warn or error. Default info. On debug every decision
	// of a gate is logged.
	LogLevel slog.Level `yaml:"log_level"`
	// DrainTimeout is how long requests that run may take to finish once the program
	// is told to end. Default 10s. 0 is an error.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// Tenants are who may call the APIs. Default none: everybody may.
	Tenants []tenant `yaml:"tenants"`
	// MonitorKey is what clients need to read the reports, those on this machine too. 16 to 256
	// visible ASCII characters. Default "": those on this machine may, and nobody else.
	MonitorKey string `yaml:"monitor_key"`
}

// outbound is headgate's configuration of the calls to the back end, and which lanes
// they have.
type outbound struct {
	inflight.Config `yaml:",inline"`
	// Models are those that have a lane of their own; all others share one. Default
	// none. At most 100.
	Models []string `yaml:"models"`
}

// maxModels bounds the models that are configured.
const maxModels = 100

// defaultConfig returns headgate's defaults with what the environment sets, and
// probes exempt.
func defaultConfig(getenv func(string) string) (config, error) {
	gates := headgate.DefaultConfig()
	gates.Admission.Exempt = []string{healthPath, readyPath}
	gates.Inflight.QueueTimeout = 30 * time.Second // clients of a gateway seldom wait for longer
	gates, err := headgate.ConfigFromEnv(gates, getenv)
	return config{
		Admission: gates.Admission, Pressure: gates.Pressure, Lanes: gates.Lanes, Inflight: outbound{Config: gates.Inflight}, Upstream: untimed(),
		LogLevel: slog.LevelInfo, DrainTimeout: 10 * time.Second,
	}, err
}

// gates is headgate's part of c.
func (c config) gates(log *slog.Logger) headgate.Config {
	return headgate.Config{Admission: c.Admission, Pressure: c.Pressure, Lanes: c.Lanes, Inflight: c.Inflight.Config, Logger: log}
}

// Validate returns an error that names the first field that is out of range.
func (c config) Validate() error {
	if c.DrainTimeout <= 0 {
		return fmt.Errorf("drain_timeout is %s: want above 0s", c.DrainTimeout)
	}
	if err := validateMonitorKey(c.MonitorKey); err != nil {
		return err
	}
	if err := validateTenants(c.Tenants); err != nil {
		return err
	}
	if err := c.Upstream.validate(); err != nil {
		return err
	}
	if len(c.Inflight.Models) > maxModels {
		return fmt.Errorf("inflight.models has %d entries: want at most %d", len(c.Inflight.Models), maxModels)
	}
	for i, m := range c.Inflight.Models {
		if m == "" || len(m) > 128 {
			return fmt.Errorf("inflight.models[%d] has %d bytes: want 1 to 128", i, len(m))
		}
	}
	if err := c.gates(nil).Validate(); err != nil {
		return err
	}
	return c.Inflight.validateLanes()
}

// validateLanes returns an error for an exception that no call could ever meet. Its key
// may hold what somebody should not have written there, so it is not repeated.
func (o outbound) validateLanes() error {
	for _, key := range slices.Sorted(maps.Keys(o.Lanes)) {
		bar := strings.LastIndexByte(key, '|')
		if bar < 0 {
			return errors.New("inflight.lanes has a key without |: want the URL of -upstream, | and one of inflight.models or other")
		}
		base, model := key[:bar], key[bar+1:]
		switch {
		case model != "other" && !slices.Contains(o.Models, model):
			return fmt.Errorf("inflight.lanes has an entry for the model %.40q, which is not one of inflight.models", model)
		case key != inflight.LaneKey(base, model, []string{model}):
			return fmt.Errorf("inflight.lanes has an entry for the model %.40q whose URL is not written as lanes are: lower case, no closing slash, no port 80 or 443 that the scheme implies, no user", model)
		}
	}
	return nil
}

// maxConfig is the most bytes of a file that can be a configuration.
const maxConfig = 1 << 20

// readConfig returns the text of a file, through links. Anything but a regular file
// is an error: reading from a pipe, for example, could block for ever.
func readConfig(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxConfig)
	}
	return text, err
}

// parseConfig returns base with what text sets. The error names line, key and
// value.
func parseConfig(text []byte, base config) (config, error) {
	c := base
	if len(bytes.TrimSpace(text)) == 0 {
		return base, errors.New("the file is empty")
	}
	if err := decodeStrict(text, &c); err != nil {
		return base, err
	}
	if err := c.Validate(); err != nil {
		return base, err
	}
	return c, nil
}
