package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	headgate "github.com/headgate-go/headgate/core"
)

// config is what the configuration file holds: headgate's keys and a few of the
// program's own.
type config struct {
	headgate.Config `yaml:",inline"`
	// LogLevel is debug, info, warn or error. Default info. On debug every decision
	// of a gate is logged.
	LogLevel slog.Level `yaml:"log_level"`
	// DrainTimeout is how long requests that run may take to finish once the program
	// is told to end. Default 10s. 0 is an error.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// Tenants are who may call the APIs. Default none: everybody may.
	Tenants []tenant `yaml:"tenants"`
}

// defaultConfig returns headgate's defaults with what the environment sets, and
// health checks exempt.
func defaultConfig(getenv func(string) string) (config, error) {
	c := config{Config: headgate.DefaultConfig(), LogLevel: slog.LevelInfo, DrainTimeout: 10 * time.Second}
	c.Admission.Exempt = []string{"/healthz"}
	var err error
	c.Config, err = headgate.ConfigFromEnv(c.Config, getenv)
	return c, err
}

// Validate returns an error that names the first field that is out of range.
func (c config) Validate() error {
	if c.DrainTimeout <= 0 {
		return fmt.Errorf("drain_timeout is %s: want above 0s", c.DrainTimeout)
	}
	if err := validateTenants(c.Tenants); err != nil {
		return err
	}
	return c.Config.Validate()
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
