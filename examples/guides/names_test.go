package guides

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	promgate "github.com/headgate-go/headgate/adapters/prometheus"
	headgate "github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/gate"
)

// root is the repository.
const root = "../.."

// What the guides speak of exists: variables, metrics, settings, fields of the reports,
// reasons with their statuses, alerts, tests. A name that was changed in the code is found here.
func TestNames(t *testing.T) {
	n := knownNames(t)
	t.Run("exist", func(t *testing.T) {
		for _, pattern := range []string{"docs/guides/*.md", "docs/operations/*.md"} {
			files, err := filepath.Glob(filepath.Join(root, pattern))
			require.NoError(t, err)
			require.NotEmpty(t, files, pattern)
			for _, file := range files {
				n.look(t, file)
			}
		}
	})
	t.Run("misspelt ones are found", func(t *testing.T) {
		for line, want := range misspelt {
			assert.Equal(t, strings.Fields(want), strings.Fields(strings.Join(n.unknown(line), " ")), line)
		}
	})
}

// look reports the names of a file that are none.
func (n *names) look(t *testing.T, file string) {
	t.Helper()
	for i, line := range strings.Split(read(t, file), "\n") {
		if filepath.Base(file) == "from-omniroute-and-protoagent.md" {
			line = ours(line)
		}
		for _, name := range n.unknown(line) {
			t.Errorf("%s:%d: there is no %s", file, i+1, name)
		}
	}
}

// misspelt are lines, and the names in them that are none.
var misspelt = map[string]string{
	"set `HEADGATE_HEVY_BYTES`":                              "HEADGATE_HEVY_BYTES",
	"or `HEADGATE_TENANTS_*`":                                "HEADGATE_TENANTS_*",
	"see `headgate_outbound_queue_dept{lane}`":               "headgate_outbound_queue_dept",
	"rate(headgate_outbound_hold_seconds_buckets[5m])":       "headgate_outbound_hold_seconds_buckets",
	"or `headgate_tenants_...`":                              "headgate_tenants_",
	"see `my_agent_llm_queues`":                              "my_agent_llm_queues",
	"the key `admission.max_inflight`":                       "admission.max_inflight",
	"`inflight.mode: shadow`, `lanes.mod: shadow`":           "lanes.mod",
	"the field `Lanes.MaxQueue` in Go":                       "Lanes.MaxQueue",
	"the field `lanes.lane_tenant` of the report":            "lanes.lane_tenant",
	"`queue_tiemout` or `max_queue`":                         "queue_tiemout",
	"[`TestSpoofedHeader`, `TestSpoofedHeaders`]":            "TestSpoofedHeader",
	"[`A11_nothing_is_read_before_a_gate`]":                  "A11_nothing_is_read_before_a_gate",
	"`429 queue_full` is the tenant's":                       "429 queue_full",
	"is 503 `tenant_queue_full`":                             "503 tenant_queue_full",
	"is 503 `no_targets`":                                    "503 no_targets no_targets",
	"the alert `HeadgateBudgetIsFull`":                       "HeadgateBudgetIsFull",
	"call `clientwrap.Refuse` or `gate.WithClass(ctx, c)`":   "clientwrap.Refuse",
	"`Limiter.Does(...)` and `Limiter.Do(...)`":              "Limiter.Does",
	"`HEADGATE_*`, `headgate_lanes_...`, `gate.Observe` too": "",
}

// Links between the Markdown files lead somewhere.
func TestLinksLead(t *testing.T) {
	files := []string{filepath.Join(root, "README.md")}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	}))
	require.Greater(t, len(files), 10)
	for _, file := range files {
		assert.Empty(t, deadLinks(t, file), file)
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.md")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.md"), []byte("## Over there, at last\n"), 0o600))
	require.NoError(t, os.WriteFile(file, []byte("# Here\n[1](b.md) [2](b.md#over-there-at-last) [3](#here) [4](https://example.com/x.md)\n"+
		"```\n# no heading\n```\n[5](c.md) [6](b.md#here) [7](#there) [8](../d/) [9](#no-heading)\n"), 0o600))
	assert.Equal(t, []string{"c.md", "b.md#here", "#there", "../d/", "#no-heading"}, deadLinks(t, file))
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	external = regexp.MustCompile(`^[a-z]+:`)
	notSlug  = regexp.MustCompile(`[^a-z0-9 _-]`)
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
)

// deadLinks are the links of a file that lead to no file, or to no heading.
func deadLinks(t *testing.T, file string) (dead []string) {
	t.Helper()
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, file), ""), -1) {
		path, heading, _ := strings.Cut(m[1], "#")
		to := file
		if path != "" {
			to = filepath.Join(filepath.Dir(file), path)
		}
		if external.MatchString(m[1]) {
			continue
		}
		if _, err := os.Stat(to); err != nil || heading != "" && !slices.Contains(headings(t, to), heading) {
			dead = append(dead, m[1])
		}
	}
	return dead
}

// headings are what the headings of a Markdown file are called in links.
func headings(t *testing.T, file string) (all []string) {
	t.Helper()
	for _, line := range strings.Split(fence.ReplaceAllString(read(t, file), ""), "\n") {
		if text := strings.TrimLeft(line, "#"); text != line && strings.HasPrefix(text, " ") {
			all = append(all, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), ""), " ", "-"))
		}
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(b)
}

// ours is a line of a table without its first column, which has others' names.
func ours(line string) string {
	if rest, ok := strings.CutPrefix(line, "|"); ok {
		_, line, _ = strings.Cut(rest, " | ")
	}
	return line
}

// names are what may be spoken of.
type names struct {
	env, metrics, alerts, tests set
	config, report              reflect.Type
	words                       set            // keys of settings and reports, and what stands in them
	reasons                     map[string]int // with their statuses
	packages                    map[string]set // exported names, methods as Type.Method
	methods                     set            // of all packages
}

type set map[string]bool

func (s set) hasPrefix(p string) bool {
	for name := range s {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

var (
	variable = regexp.MustCompile(`HEADGATE_[A-Z_]*\*?`)
	metric   = regexp.MustCompile(`\b(?:headgate|my_agent_llm)_[a-z0-9_]*`)
	series   = regexp.MustCompile(`_(bucket|count|sum)$`)
	code     = regexp.MustCompile("`([^`]+)`")
	answered = regexp.MustCompile("\\b([45]\\d\\d) `?([a-z]+_[a-z_]+)\\b")
	setting  = regexp.MustCompile(`^(admission|lanes|inflight|pressure)\.([a-z_]+)`)
	goField  = regexp.MustCompile(`^(?:Admission|Lanes|Inflight|Pressure)\.[A-Z]\w+`)
	goName   = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	method   = regexp.MustCompile(`^(?:Budget|Controller|Limiter|Lease|Monitor|Transport)\.[A-Z]\w+`)
	word     = regexp.MustCompile(`^[a-z]+(?:_[a-z0-9]+)+$`)
	testFunc = regexp.MustCompile(`^Test[A-Z]\w*$`)
	suite    = regexp.MustCompile(`^[A-Z]\d+_\w+$`)
	alert    = regexp.MustCompile(`^Headgate[A-Z][A-Za-z]+$`)
)

// unknown are the names in a line that are none.
func (n *names) unknown(line string) (bad []string) {
	add := func(known bool, name string) {
		if !known {
			bad = append(bad, name)
		}
	}
	for _, name := range variable.FindAllString(line, -1) {
		prefix := strings.TrimSuffix(name, "*")
		add(n.env[name] || strings.HasSuffix(prefix, "_") && n.env.hasPrefix(prefix), name)
	}
	for _, name := range metric.FindAllString(line, -1) {
		add(n.metrics[name] || n.metrics[series.ReplaceAllString(name, "")] || strings.HasSuffix(name, "_") && n.metrics.hasPrefix(name), name)
	}
	for _, m := range answered.FindAllStringSubmatch(line, -1) {
		add(strconv.Itoa(n.reasons[m[2]]) == m[1], m[1]+" "+m[2])
	}
	for _, m := range code.FindAllStringSubmatch(line, -1) {
		n.unknownCode(m[1], add)
	}
	return bad
}

// unknownCode tells add of the names at the beginning of a piece of code.
func (n *names) unknownCode(text string, add func(known bool, name string)) {
	key, _, _ := strings.Cut(text, ":")
	if m := setting.FindStringSubmatch(text); m != nil {
		add(hasKey(n.config, "yaml", m[1], m[2]) || hasKey(n.report, "json", m[1], m[2]), m[0])
	} else if m := goName.FindStringSubmatch(text); m != nil && n.packages[m[1]] != nil {
		add(n.packages[m[1]][m[2]], m[0])
	} else if name := goField.FindString(text); name != "" {
		gate, field, _ := strings.Cut(name, ".")
		of, _ := n.config.FieldByName(gate)
		_, ok := of.Type.FieldByName(field)
		add(ok, name)
	} else if name := method.FindString(text); name != "" {
		add(n.methods[name], name)
	} else if word.MatchString(key) && !metric.MatchString(key) {
		add(n.words[key], key)
	} else if testFunc.MatchString(text) || suite.MatchString(text) {
		add(n.tests[text], text)
	} else if alert.MatchString(text) {
		add(n.alerts[text], text)
	}
}

// hasKey reports whether the part of a struct with that tag has a field with that tag.
func hasKey(of reflect.Type, tag, part, key string) bool {
	for f := range fields(of, tag, part) {
		if f == key {
			return true
		}
	}
	return false
}

// fields yields the tags of the fields of one part.
func fields(of reflect.Type, tag, part string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := range of.NumField() {
			if name, _, _ := strings.Cut(of.Field(i).Tag.Get(tag), ","); name != part {
				continue
			}
			for j := range of.Field(i).Type.NumField() {
				name, _, _ := strings.Cut(of.Field(i).Type.Field(j).Tag.Get(tag), ",")
				if !yield(name) {
					return
				}
			}
		}
	}
}

func knownNames(t *testing.T) *names {
	t.Helper()
	n := &names{
		env: set{}, alerts: set{}, tests: set{}, words: set{}, reasons: map[string]int{}, packages: map[string]set{}, methods: set{},
		config: reflect.TypeFor[headgate.Config](), report: reflect.TypeFor[headgate.Snapshot](),
	}
	_, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), func(name string) string {
		n.env[name] = true
		return ""
	})
	require.NoError(t, err)
	n.metrics = metrics(t)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, root+"/docs/operations/alerts.yaml")), &rules))
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n.alerts[r.Alert] = true
			for key := range r.Annotations {
				n.words[key] = true
			}
		}
	}
	n.readSources(t)
	for name, s := range map[string]set{
		"variables": n.env, "metrics": n.metrics, "alerts": n.alerts, "tests": n.tests, "words": n.words, "methods": n.methods,
	} {
		require.Greater(t, len(s), 10, name)
	}
	require.Greater(t, len(n.reasons), 10)
	require.Len(t, n.packages, len(packageDirs))
	return n
}

// metrics are the names that a collector describes, and those that it has in the place of another program's.
func metrics(t *testing.T) set {
	t.Helper()
	hg, err := headgate.Open(quiet(headgate.DefaultConfig()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, hg.Shutdown(context.Background(), nil)) }()
	all, name := set{}, regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, options := range [][]promgate.Option{
		nil, {promgate.WithNamespace("my-agent"), promgate.WithSubsystems(promgate.Subsystems{Outbound: "llm"})},
	} {
		c, err := promgate.New(hg, options...)
		require.NoError(t, err)
		descs := make(chan *prometheus.Desc)
		go func() {
			defer close(descs)
			c.Describe(descs)
		}()
		for d := range descs {
			all[name.FindStringSubmatch(d.String())[1]] = true
		}
	}
	return all
}

// packageDirs are the packages whose names the guides use.
var packageDirs = map[string]string{
	"headgate": "core", "gate": "core/gate", "admission": "core/admission", "lanes": "core/lanes", "inflight": "core/inflight",
	"pressure": "core/pressure", "monitor": "core/monitor", "clientwrap": "clientwrap", "httpgate": "adapters/nethttp",
	"promgate": "adapters/prometheus", "llmcost": "adapters/llmcost",
}

// readSources reads what the sources declare: tests, keys and words, exported names, reasons.
func (n *names) readSources(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"core", "clientwrap", "adapters", "examples"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			n.readFile(path, file)
			return nil
		}))
	}
	for reason := range maps.Keys(n.reasons) {
		n.reasons[reason] = (&gate.Rejection{Reason: gate.Reason(reason)}).Status()
	}
}

func (n *names) readFile(path string, file *ast.File) {
	dir, _ := filepath.Rel(root, filepath.Dir(path))
	isTest := strings.HasSuffix(path, "_test.go")
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && isTest && f.Recv == nil {
			n.tests[f.Name.Name] = true
		}
	}
	if isTest {
		return
	}
	if pkg := file.Name.Name; packageDirs[pkg] == filepath.ToSlash(dir) {
		n.readExports(pkg, file)
	}
	inSuite := filepath.ToSlash(dir) == "core/gatetest"
	ast.Inspect(file, func(node ast.Node) bool {
		lit, ok := node.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, _ := strconv.Unquote(lit.Value)
		switch tag := reflect.StructTag(text); {
		case inSuite && suite.MatchString(text):
			n.tests[text] = true
		case word.MatchString(text):
			n.words[text] = true
			if strings.HasSuffix(path, "core/gate/reason.go") {
				n.reasons[text] = 0
			}
		case tag.Get("yaml") != "" || tag.Get("json") != "":
			for _, key := range []string{"yaml", "json"} {
				name, _, _ := strings.Cut(tag.Get(key), ",")
				n.words[name] = true
			}
		}
		return true
	})
}

// readExports notes what a file of a package declares. Methods are noted as Type.Method.
func (n *names) readExports(pkg string, file *ast.File) {
	if n.packages[pkg] == nil {
		n.packages[pkg] = set{}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				name = fmt.Sprint(of) + "." + name
				n.methods[name] = true
			}
			n.packages[pkg][name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					n.packages[pkg][s.Name.Name] = true
				case *ast.ValueSpec:
					for _, id := range s.Names {
						n.packages[pkg][id.Name] = true
					}
				}
			}
		}
	}
}
