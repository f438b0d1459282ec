package clientwrap

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowContext is a context whose deadline has passed, and that has not noticed yet.
type slowContext struct{ context.Context }

func (slowContext) Deadline() (time.Time, bool) { return time.Now(), true }

// http.Client closes the channel at the deadline of the context: that is the deadline's
// end, whichever is told first.
func TestLegacyDeadline(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	late := &legacy{Context: slowContext{context.Background()}, canceled: closed}
	<-late.Done()
	assert.Equal(t, context.DeadlineExceeded, late.Err())
	late.end()

	byHand := &legacy{Context: context.Background(), canceled: closed}
	<-byHand.Done()
	assert.Equal(t, context.Canceled, byHand.Err())
	byHand.end()

	open := &legacy{Context: context.Background(), canceled: make(chan struct{})}
	require.NoError(t, open.Err())
	open.end()
}
