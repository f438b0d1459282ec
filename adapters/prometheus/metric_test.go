package promgate

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A counter that is taken back for a moment stays where it was.
func TestRising(t *testing.T) {
	var r rising
	for _, step := range [][2]int64{{0, 0}, {3, 3}, {2, 3}, {3, 3}, {-1, 3}, {4, 4}} {
		assert.Equal(t, step[1], r.at(step[0]))
	}
}
