package versus

import (
	"os"
	"testing"

	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"
)

// TestMain silences go-zero, which otherwise writes its process's figures between
// the lines of the results once a minute.
func TestMain(m *testing.M) {
	stat.DisableLog()
	logx.Disable()
	os.Exit(m.Run())
}
