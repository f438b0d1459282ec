package guides

import (
	"log/slog"

	headgate "github.com/headgate-go/headgate/core"
)

// quiet is c without a log: the tests compare what is printed.
func quiet(c headgate.Config) headgate.Config {
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}
