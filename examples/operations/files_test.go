package operations

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-go/headgate/clientwrap"
	headgate "github.com/headgate-go/headgate/core"
)

// docs is where the files are that are tested here.
const docs = "../../docs/operations"

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(docs, name))
	require.NoError(t, err)
	return string(b)
}

// rule is an alert.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "alerts.yaml")), &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// target is a query of a panel.
type target struct {
	Expr         string          `json:"expr"`
	RefID        string          `json:"refId"`
	LegendFormat string          `json:"legendFormat"`
	Instant      bool            `json:"instant"`
	Datasource   json.RawMessage `json:"datasource"`
}

// panel is a panel of the dashboard, or a row.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

type variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
	AllValue   string `json:"allValue"`
	Query      any    `json:"query"`
}

type dashboard struct {
	UID           string          `json:"uid"`
	Title         string          `json:"title"`
	ID            json.RawMessage `json:"id"`
	SchemaVersion int             `json:"schemaVersion"`
	Panels        []panel         `json:"panels"`
	Annotations   struct {
		List []target `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(text(t, "dashboard.json")), &d))
	return d
}

// queries are all expressions of the dashboard, those of annotations too.
func (d dashboard) queries() []string {
	var all []string
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			all = append(all, a.Expr)
		}
	}
	return all
}

// Everybody who gets an alert is told what it means and what to do.
func TestAlertsAreExplained(t *testing.T) {
	runbook := text(t, "runbook.md")
	headings := map[string]string{} // by anchor
	var order []string
	for _, section := range strings.Split(runbook, "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		headings[strings.ToLower(title)] = body
		order = append(order, title)
	}
	var alerts []string
	for _, r := range rules(t) {
		alerts = append(alerts, r.Alert)
		assert.NotEmpty(t, r.For, r.Alert)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		assert.Equal(t, "https://github.com/headgate-go/headgate/blob/main/docs/operations/runbook.md", page, r.Alert)
		assert.Equal(t, strings.ToLower(r.Alert), anchor, r.Alert)
		for _, part := range []string{"**Meaning.**", "**Confirm.**", "**Do.**", "**Do not.**"} {
			assert.Contains(t, headings[anchor], part, "%s in the runbook", r.Alert)
		}
	}
	assert.Equal(t, alerts, order, "the runbook has the alerts, in their order, and no others")
}

// Panels that the runbook names exist.
func TestRunbookNamesPanels(t *testing.T) {
	titles := map[string]bool{}
	for _, p := range readDashboard(t).Panels {
		titles[p.Title] = p.Type != "row"
	}
	found := regexp.MustCompile(`"([A-Z][^"\n]+)"`).FindAllStringSubmatch(text(t, "runbook.md"), -1)
	assert.Greater(t, len(found), 10)
	for _, m := range found {
		assert.True(t, titles[m[1]], "no panel %s", m[0])
	}
}

// Every alert is seen to fire, and not to.
func TestAlertsAreTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Rules []struct {
				Alert string           `yaml:"alertname"`
				Exp   []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "alerts_test.yaml")), &file))
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, r := range test.Rules {
			if len(r.Exp) > 0 {
				fires[r.Alert] = true
			} else {
				rests[r.Alert] = true
			}
		}
	}
	for _, r := range rules(t) {
		assert.True(t, fires[r.Alert], "%s: no test in which it fires", r.Alert)
		assert.True(t, rests[r.Alert], "%s: no test in which it does not", r.Alert)
	}
}

var (
	fieldName = regexp.MustCompile(`\b(Admission|Pressure|Lanes|Inflight)\.([A-Z][A-Za-z]+)(?:\.([A-Z][A-Za-z]+))?`)
	envName   = regexp.MustCompile(`\bHEADGATE_[A-Z_]+\b`)
	wrapField = regexp.MustCompile("clientwrap's `?([A-Z][A-Za-z]+)")
)

// The settings that the texts tell to change exist.
func TestNamesOfSettings(t *testing.T) {
	env := map[string]bool{}
	_, err := headgate.ConfigFromEnv(headgate.DefaultConfig(), func(name string) string { env[name] = true; return "" })
	require.NoError(t, err)
	env["HEADGATE_REQUIRE_PROMETHEUS"] = true // of these tests
	for name, least := range map[string]int{"alerts.yaml": 10, "runbook.md": 20, "README.md": 0, "dashboard.json": 3} {
		s := text(t, name)
		found := fieldName.FindAllStringSubmatch(s, -1)
		assert.GreaterOrEqual(t, len(found), least, name)
		for _, m := range found {
			typ := reflect.TypeFor[headgate.Config]()
			for _, part := range m[1:] {
				if part == "" {
					break
				}
				f, ok := typ.FieldByName(part)
				if assert.True(t, ok, "%s: no setting %s", name, m[0]) {
					typ = f.Type
				}
			}
		}
		for _, m := range envName.FindAllString(s, -1) {
			assert.True(t, env[m], "%s: no variable %s", name, m)
		}
		for _, m := range wrapField.FindAllStringSubmatch(s, -1) {
			_, ok := reflect.TypeFor[clientwrap.Config]().FieldByName(m[1])
			assert.True(t, ok, "%s: clientwrap.Config has no %s", name, m[1])
		}
	}
}

// The dashboard is one that Grafana can import, and that a stranger can read.
func TestDashboardFile(t *testing.T) {
	d := readDashboard(t)
	assert.Equal(t, "null", string(d.ID), "an id is the importing Grafana's to give")
	assert.NotEmpty(t, d.UID)
	assert.NotEmpty(t, d.Title)
	assert.GreaterOrEqual(t, d.SchemaVersion, 39)
	ids, titles := map[int]bool{}, map[string]bool{}
	var taken [][]string // rows of 24 cells
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID] || p.ID <= 0, "%s: id %d", p.Title, p.ID)
		ids[p.ID] = true
		assert.NotEmpty(t, p.Title)
		assert.False(t, titles[p.Title], "two panels %q", p.Title)
		titles[p.Title] = true
		g := p.GridPos
		require.True(t, g.X >= 0 && g.Y >= 0 && g.W > 0 && g.H > 0 && g.X+g.W <= 24, "%s: %+v", p.Title, g)
		for y := g.Y; y < g.Y+g.H; y++ {
			for len(taken) <= y {
				taken = append(taken, make([]string, 24))
			}
			for x := g.X; x < g.X+g.W; x++ {
				assert.Empty(t, taken[y][x], "%s covers it", p.Title)
				taken[y][x] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Description, p.Title)
		assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, q := range p.Targets {
			assert.NotEmpty(t, q.Expr, p.Title)
			assert.NotEmpty(t, q.LegendFormat, p.Title)
			assert.False(t, refs[q.RefID] || q.RefID == "", "%s: refId %q", p.Title, q.RefID)
			refs[q.RefID] = true
			assert.JSONEq(t, `{"type": "prometheus", "uid": "${datasource}"}`, string(q.Datasource), p.Title)
		}
	}
	for y, line := range taken {
		assert.NotEmpty(t, strings.Join(line, ""), "line %d is empty", y)
	}
}

// Whoever chooses a job and an instance sees those alone.
func TestDashboardGoesByItsVariables(t *testing.T) {
	d := readDashboard(t)
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{"datasource", "job", "instance", "lane"}, names)
	for _, q := range d.queries() {
		found := selector.FindAllStringSubmatch(q, -1)
		require.NotEmpty(t, found, q)
		for _, m := range found {
			assert.Contains(t, m[2], `job=~"$job"`, q)
			assert.Contains(t, m[2], `instance=~"$instance"`, q)
		}
	}
}

// selector is a name with its matchers; a name without any has no second group.
var selector = regexp.MustCompile(`\b(headgate_[a-z0-9_]+|ALERTS|up)\b(?:\{([^}]*)\})?`)

// matcher is one of them.
var matcher = regexp.MustCompile(`([a-z_]+)\s*(=~|!=|!~|=)\s*"([^"]*)"`)

// use is a metric in a query, with the values of labels that it asks for.
type use struct {
	name   string
	labels map[string][]string
}

// uses are the metrics of a query.
func uses(expr string) []use {
	var all []use
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		u := use{m[1], map[string][]string{}}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if strings.HasPrefix(l[3], "$") || l[2][0] == '!' {
				u.labels[l[1]] = nil // any
			} else {
				u.labels[l[1]] = strings.Split(l[3], "|")
			}
		}
		all = append(all, u)
	}
	return all
}

func TestUses(t *testing.T) {
	got := uses(`sum by (le) (rate(headgate_a_bucket{job=~"$job", reason=~"x|y", mode!="off"}[5m])) / headgate_b > 0`)
	assert.Equal(t, []use{
		{"headgate_a_bucket", map[string][]string{"job": nil, "reason": {"x", "y"}, "mode": nil}},
		{"headgate_b", map[string][]string{}},
	}, got, fmt.Sprint(got))
}
