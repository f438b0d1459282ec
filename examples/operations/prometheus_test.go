package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server is a Prometheus that scrapes a storm once a second and evaluates the alerts.
type server struct {
	url   string
	log   *safeBuffer
	until time.Time // how long a test waits for all that must happen
}

// safeBuffer is a log that may be read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *safeBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// startPrometheus runs one until the test ends. It returns when it answers.
func startPrometheus(t *testing.T, s *storm) *server {
	t.Helper()
	bin := program(t, "prometheus")
	dir := t.TempDir()
	alerts, err := filepath.Abs(filepath.Join(docs, "alerts.yaml"))
	require.NoError(t, err)
	var targets []string
	for _, service := range s.services {
		targets = append(targets, strconv.Quote(strings.TrimPrefix(service.URL, "http://")))
	}
	config := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: storm
    static_configs: [{targets: [%s]}]
`, alerts, strings.Join(targets, ", ")), 0o600))
	for range 3 { // somebody may take the port between the look and the start
		p := &server{url: "http://" + freeAddress(t), log: new(safeBuffer), until: time.Now().Add(2 * hang)}
		cmd := exec.Command(bin, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
			"--web.listen-address="+strings.TrimPrefix(p.url, "http://"), "--log.level=warn")
		cmd.Stdout, cmd.Stderr = p.log, p.log
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
		if p.answers(ended) {
			return p
		}
		t.Logf("prometheus did not start: %s", p.log)
	}
	require.FailNow(t, "prometheus does not start")
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// answers waits until it is ready, or has ended.
func (p *server) answers(ended <-chan struct{}) bool {
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); {
		select {
		case <-ended:
			return false
		case <-time.After(50 * time.Millisecond): // a process
		}
		if resp, err := http.Get(p.url + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
	}
	return false
}

// get asks the API and decodes its data.
func (p *server) get(ctx context.Context, path string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return fmt.Errorf("%s: %.200s", resp.Status, b)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// series is one of a query's result. Its points are [time, "value"].
type series struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
	Value  *[2]any           `json:"value"`
}

// look is what a panel would show.
type look struct {
	series int
	points int  // that are numbers
	moves  bool // not all are zero
}

// ask evaluates a query as Grafana does: now, or over the last 15 s in steps of 1 s.
func (p *server) ask(ctx context.Context, expr string, instant bool) (look, error) {
	path, q, now := "query", url.Values{"query": {expr}}, time.Now()
	if !instant {
		path = "query_range"
		q.Set("start", strconv.FormatInt(now.Add(-15*time.Second).Unix(), 10))
		q.Set("end", strconv.FormatInt(now.Unix(), 10))
		q.Set("step", "1")
	}
	var data struct {
		Result []series `json:"result"`
	}
	if err := p.get(ctx, path, q, &data); err != nil {
		return look{}, err
	}
	l := look{series: len(data.Result)}
	for _, s := range data.Result {
		if s.Value != nil {
			s.Values = append(s.Values, *s.Value)
		}
		for _, point := range s.Values {
			text, _ := point[1].(string)
			v, err := strconv.ParseFloat(text, 64)
			if err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
				l.points++
				l.moves = l.moves || v != 0
			}
		}
	}
	return l, nil
}

var special = regexp.MustCompile(`[$^*{}\[\]'+?.()|]`)

// choice is a value of a variable as Grafana writes it into a query.
func choice(value string) string {
	return special.ReplaceAllString(strings.ReplaceAll(value, `\`, `\\\\`), `\\$0`)
}

// inGrafana is expr as Grafana sends it to a data source whose scrape interval is 1 s.
func inGrafana(expr string, vars map[string]string) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", "4s")
	for name, value := range vars {
		expr = strings.ReplaceAll(expr, "$"+name, value)
	}
	return expr
}

// quiet are the queries that read zero in the storm, and why. All others must not.
var quiet = map[string]string{
	"Longest wait B":             "no back end asks for a pause",
	"Requests admitted C":        "no client leaves",
	"Bytes that wait B":          "bodies are read after they are admitted",
	"Odd requests A":             "whoever has no tenant has an address",
	"Odd requests B":             "there are few tenants",
	"Odd requests C":             "prices are the default ones",
	"Odd requests D":             "no gate fails",
	"Part of the limit in use B": "a dip comes every two minutes",
}

// Every panel shows something in a storm, for all lanes and for one.
func TestDashboardShowsAStorm(t *testing.T) {
	s := startStorm(t)
	p := startPrometheus(t, s)
	d := readDashboard(t)
	all := map[string]string{}
	for _, v := range d.Templating.List {
		all[v.Name] = v.AllValue
	}
	one := map[string]string{"job": "storm", "instance": choice(strings.TrimPrefix(s.services[0].URL, "http://")), "lane": choice(small)}
	unused := maps.Clone(quiet)
	for _, pn := range d.Panels {
		for _, q := range pn.Targets {
			name := pn.Title + " " + q.RefID
			delete(unused, name)
			p.shows(t, name, inGrafana(q.Expr, all), q.Instant, quiet[name] == "")
			p.shows(t, name, inGrafana(q.Expr, one), q.Instant, false)
		}
	}
	assert.Empty(t, unused, "not queries of the dashboard")
	for _, a := range d.Annotations.List { // nothing is firing yet
		if a.Expr != "" {
			_, err := p.ask(t.Context(), inGrafana(a.Expr, one), false)
			assert.NoError(t, err, a.Expr)
		}
	}
	for _, q := range runbookQueries(t) {
		p.shows(t, "runbook", q, true, false)
	}
	p.variables(t, d)
	p.healthy(t)
	if t.Failed() {
		t.Log(p.log)
	}
}

// shows waits until a query returns data, and where it must, another number than zero.
func (p *server) shows(t *testing.T, name, expr string, instant, moves bool) {
	t.Helper()
	assert.NotContains(t, expr, "$", name)
	var got look
	for again := true; again; time.Sleep(200 * time.Millisecond) { // a process
		again = time.Now().Before(p.until)
		var err error
		got, err = p.ask(t.Context(), expr, instant)
		require.NoError(t, err, "%s: %s", name, expr)
		if got.points > 0 && (got.moves || !moves) {
			return
		}
	}
	assert.Fail(t, "no data", "%s: %+v, other than zero: %v: %s", name, got, moves, expr)
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// variables have values to choose.
func (p *server) variables(t *testing.T, d dashboard) {
	t.Helper()
	want := map[string]int{"job": 1, "instance": 2, "lane": 2}
	chosen := map[string]string{"job": ".*", "instance": ".*"}
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		require.NotNil(t, m, v.Definition)
		var values []string
		err := p.get(t.Context(), "label/"+m[2]+"/values", url.Values{"match[]": {inGrafana(m[1], chosen)}}, &values)
		require.NoError(t, err, v.Definition)
		assert.Len(t, values, want[v.Name], "%s: %v", v.Name, values)
	}
}

// healthy waits until every alert has been evaluated, and without an error.
func (p *server) healthy(t *testing.T) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
			} `json:"rules"`
		} `json:"groups"`
	}
	var odd []string
	for again := true; again; time.Sleep(200 * time.Millisecond) { // a process
		again = time.Now().Before(p.until)
		require.NoError(t, p.get(t.Context(), "rules", nil, &data))
		odd = nil
		n := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				n++
				if r.Health != "ok" {
					odd = append(odd, r.Name+": "+r.Health+" "+r.LastError)
				}
			}
		}
		if n == len(rules(t)) && len(odd) == 0 {
			return
		}
	}
	assert.Fail(t, "not healthy", "%v", odd)
}
