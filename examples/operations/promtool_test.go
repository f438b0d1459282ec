package operations

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// program returns the path of one of Prometheus's programs.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	const missing = "%s is missing: install Debian's package prometheus"
	if os.Getenv("HEADGATE_REQUIRE_PROMETHEUS") == "1" {
		t.Fatalf(missing, name)
	}
	t.Skipf(missing, name)
	return ""
}

// run runs a program in docs/operations, which must succeed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, name), args...)
	cmd.Dir = filepath.FromSlash(docs)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestAlertRules(t *testing.T) {
	run(t, "promtool", "check", "rules", "alerts.yaml")
	run(t, "promtool", "test", "rules", "alerts_test.yaml")
}

// The commands of the README work, one after the other, and the rules hold under the names
// that the last of them gives.
func TestReadmeCommands(t *testing.T) {
	promtool := program(t, "promtool")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	root := t.TempDir()
	dir := filepath.Join(root, "docs", "operations")
	require.NoError(t, os.CopyFS(dir, os.DirFS(docs)))
	var script strings.Builder
	blocks := strings.Split("\n"+text(t, "README.md"), "\n```")
	for i := 1; i < len(blocks); i += 2 { // every other one is between two fences
		if body, ok := strings.CutPrefix(blocks[i], "\n"); ok { // a block with a language is no command
			script.WriteString(body + "\n")
		}
	}
	script.WriteString("promtool check rules alerts.yaml && promtool test rules alerts_test.yaml\n")
	require.Contains(t, script.String(), "my_agent_llm_")
	cmd := exec.CommandContext(t.Context(), sh, "-ec", script.String())
	cmd.Dir, cmd.Env = root, append(os.Environ(), "PATH="+filepath.Dir(promtool)+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	for _, name := range []string{"alerts.yaml", "dashboard.json", "runbook.md"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.False(t, strings.Contains(string(b), "headgate_"), name)
		require.True(t, strings.Contains(string(b), "my_agent_llm_"), name)
	}
	var operator struct {
		Kind string
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	b, err := os.ReadFile(filepath.Join(dir, "prometheusrule.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(b, &operator))
	require.Equal(t, "PrometheusRule", operator.Kind)
	require.Len(t, operator.Spec.Groups, 1)
	require.Equal(t, rules(t), operator.Spec.Groups[0].Rules)
}
