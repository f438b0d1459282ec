package promgate_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/adapters/prometheus"
	"github.com/headgate-go/headgate/core"
	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/headgate-go/headgate/core/lanes"
	"github.com/headgate-go/headgate/core/pressure"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const llm = "https://gw/v1|org/smart"

// busy opens all gates with something in each.
func busy(t testing.TB) *headgate.Headgate {
	t.Helper()
	c := settings()
	c.Admission.MaxHeavyInFlight = 4
	c.Lanes.Mode, c.Lanes.VirtualLanes = gate.Enforce, true
	hg := open(t, c)
	for _, g := range []gate.Gate{hg.Bytes, hg.Tenants, hg.Outbound} {
		lease, err := g.Acquire(context.Background(), gate.Request{Lane: llm, Bytes: 1 << 20, Flow: "tenant"})
		require.NoError(t, err)
		t.Cleanup(lease.Release)
	}
	return hg
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(registered(t, busy(t)))
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// A scrape is what the descriptions say, which a registry that is pedantic checks.
func TestPedantic(t *testing.T) {
	c, err := promgate.New(busy(t), promgate.WithConstLabels(prometheus.Labels{"app": "a"}))
	require.NoError(t, err)
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	s := scrape(t, r)
	assert.Greater(t, len(s), 150)
	for name := range s {
		assert.Contains(t, name, "app=a")
	}
}

// The package comment names the metrics with their labels, and no others.
func TestDocumentedNames(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^//\t((?:admission|pressure|lanes|outbound|scrape)_.*)$`).FindAllStringSubmatch(string(doc), -1) {
		want = append(want, regexp.MustCompile(`(?:admission|pressure|lanes|outbound|scrape)_\w+(?:\{[\w,]+\})?`).FindAllString(m[1], -1)...)
	}
	c, err := promgate.New(busy(t))
	require.NoError(t, err)
	var got []string
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	parts := regexp.MustCompile(`fqName: "headgate_(\w+)", help: "(.+?)", .*constLabels: \{\}, variableLabels: [{\[]([^}\]]*)`)
	for d := range descs {
		m := parts.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		assert.Regexp(t, `^[A-Z0-9].*\.$`, m[2])
		if m[3] != "" {
			m[1] += "{" + m[3] + "}"
		}
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	assert.Equal(t, want, got)
}

// By another namespace and subsystem, the names of an existing dashboard, to the letter.
func TestNamesOfADashboard(t *testing.T) {
	hg := limiter(t, nil)
	lease, err := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: llm})
	require.NoError(t, err)
	defer lease.Release()
	s := scrape(t, registered(t, hg, promgate.WithNamespace("my-agent"), promgate.WithSubsystems(promgate.Subsystems{Outbound: "llm"})))
	assert.Equal(t, 1.0, s.value(t, "my_agent_llm_inflight{lane="+llm+"}"))
	assert.Equal(t, 0.0, s.value(t, "my_agent_llm_queue_depth{lane="+llm+",priority=bulk}"))
	assert.Equal(t, 0.0, s.value(t, "my_agent_llm_queue_timeouts_total{lane="+llm+"}"))
	for _, le := range []string{"0.005", "0.025", "0.1", "0.5", "1", "5", "15", "30", "60", "120", "300", "600"} {
		assert.Equal(t, 1.0, s.value(t, "my_agent_llm_queue_wait_seconds_bucket{lane="+llm+",priority=default,le="+le+"}"))
	}
}

func TestNamespaces(t *testing.T) {
	hg := limiter(t, nil)
	for namespace, want := range map[string]string{
		"headgate": "headgate_outbound_enabled", "my-agent": "my_agent_outbound_enabled", "": "outbound_enabled",
		"9lives": "_9lives_outbound_enabled", "a:b c.d": "a_b_c_d_outbound_enabled", "é": "__outbound_enabled",
		"\xff\n\"": "____outbound_enabled", "-": "__outbound_enabled", "Agent7": "Agent7_outbound_enabled",
	} {
		assert.Equal(t, 1.0, scrape(t, registered(t, hg, promgate.WithNamespace(namespace))).value(t, want), "%q", namespace)
	}
	s := scrape(t, registered(t, hg, promgate.WithSubsystems(promgate.Subsystems{Outbound: "a-1"}), promgate.WithSubsystems(promgate.Subsystems{Lanes: "x"})))
	assert.Equal(t, 1.0, s.value(t, "headgate_a_1_enabled"))
}

func TestBadInput(t *testing.T) {
	hg := open(t, settings())
	for name, opt := range map[string]promgate.Option{
		"a label of a metric": promgate.WithConstLabels(prometheus.Labels{"lane": "x"}),
		"a bucket's label":    promgate.WithConstLabels(prometheus.Labels{"le": "x"}),
		"no label's name":     promgate.WithConstLabels(prometheus.Labels{"a-b": "x"}),
		"a reserved name":     promgate.WithConstLabels(prometheus.Labels{"__a": "x"}),
		"no name":             promgate.WithConstLabels(prometheus.Labels{"": "x"}),
		"a digit first":       promgate.WithConstLabels(prometheus.Labels{"1a": "x"}),
		"no text":             promgate.WithConstLabels(prometheus.Labels{"a": "\xff"}),
		"one name for two":    promgate.WithSubsystems(promgate.Subsystems{Outbound: "lanes"}),
		"one after sanitized": promgate.WithSubsystems(promgate.Subsystems{Outbound: "x-y", Lanes: "x_y"}),
	} {
		_, err := promgate.New(hg, opt)
		assert.ErrorContains(t, err, "promgate: ", name)
		t.Log(err)
	}
	for name, hg := range map[string]*headgate.Headgate{"nil": nil, "without a gate": {}} {
		_, err := promgate.New(hg)
		assert.ErrorContains(t, err, "promgate: hg ", name)
	}
}

// Labels that the caller changes afterwards change nothing.
func TestConstLabelsAreCopied(t *testing.T) {
	labels := prometheus.Labels{"app": "a"}
	opt := promgate.WithConstLabels(labels)
	labels["app"] = "b"
	assert.Equal(t, 1.0, scrape(t, registered(t, limiter(t, nil), opt)).value(t, "headgate_outbound_enabled{app=a}"))
}

// A gate that is not there has no series, whichever it is.
func TestSingleGates(t *testing.T) {
	all := open(t, settings())
	for name, hg := range map[string]*headgate.Headgate{
		"admission": {Bytes: all.Bytes}, "pressure": {Memory: all.Memory}, "lanes": {Tenants: all.Tenants}, "outbound": {Outbound: all.Outbound},
	} {
		s := scrape(t, registered(t, hg))
		assert.NotEmpty(t, s)
		for _, got := range s.names() {
			if got != "headgate_scrape_failures_total{gate="+name+"}" {
				assert.True(t, strings.HasPrefix(got, "headgate_"+name+"_"), "%s of %s", got, name)
			}
		}
	}
}

// I4: who registers twice gets no error and no panic, and stop takes away its own only.
func TestI4Registration(t *testing.T) {
	a, b := open(t, settings()), open(t, settings())
	label := func(v string) promgate.Option { return promgate.WithConstLabels(prometheus.Labels{"app": v}) }
	create := func(hg *headgate.Headgate, opts ...promgate.Option) *promgate.Collector {
		c, err := promgate.New(hg, opts...)
		require.NoError(t, err)
		return c
	}
	r := prometheus.NewRegistry()
	first := create(a, label("a"))
	stop, err := first.Register(r)
	require.NoError(t, err)
	n := len(scrape(t, r))

	for _, again := range []*promgate.Collector{first, create(a, label("a"))} {
		stopAgain, err := again.Register(r)
		require.NoError(t, err)
		stopAgain() // it is not what has registered
	}
	assert.Len(t, scrape(t, r), n)

	for name, other := range map[string]*promgate.Collector{
		"no label": create(b), "the same label": create(b, label("a")), "another label": create(b, promgate.WithConstLabels(prometheus.Labels{"x": "b"})),
		"one gate of it": create(&headgate.Headgate{Outbound: b.Outbound}, label("a")),
	} {
		_, err := other.Register(r)
		require.ErrorContains(t, err, "WithConstLabels", name)
		require.ErrorContains(t, err, "another Headgate", name)
	}
	assert.Len(t, scrape(t, r), n)

	stopB, err := create(b, label("b")).Register(r)
	require.NoError(t, err)
	assert.Len(t, scrape(t, r), 2*n)
	stop()
	s := scrape(t, r)
	assert.Len(t, s, n)
	assert.Contains(t, s.names()[0], "app=b")

	restarted, err := first.Register(r)
	require.NoError(t, err)
	stop() // once more: it is done
	assert.Len(t, scrape(t, r), 2*n)
	restarted()
	stopB()
	assert.Empty(t, scrape(t, r))
}

// A registry that renames what it gets is one like others.
func TestWrappedRegistry(t *testing.T) {
	c, err := promgate.New(limiter(t, nil))
	require.NoError(t, err)
	r := prometheus.NewRegistry()
	w := prometheus.WrapRegistererWith(prometheus.Labels{"app": "a"}, r)
	stop, err := c.Register(w)
	require.NoError(t, err)
	_, err = c.Register(w)
	require.NoError(t, err)
	assert.Equal(t, 1.0, scrape(t, r).value(t, "headgate_outbound_enabled{app=a}"))
	stop()
	assert.Empty(t, scrape(t, r))
}

// A gate whose state cannot be read takes neither the process nor the scrape with it.
func TestPanicInAGate(t *testing.T) {
	hg := &headgate.Headgate{
		Outbound: limiter(t, nil).Outbound, Bytes: new(admission.Budget), Memory: new(pressure.Monitor), Tenants: new(lanes.Controller),
	}
	r := registered(t, hg)
	for i := range 3 {
		s := scrape(t, r)
		assert.Equal(t, 1.0, s.value(t, "headgate_outbound_enabled"))
		assert.Equal(t, 0.0, s.value(t, "headgate_scrape_failures_total{gate=outbound}"))
		for _, gate := range []string{"admission", "pressure", "lanes"} {
			assert.Equal(t, float64(i+1), s.value(t, "headgate_scrape_failures_total{gate="+gate+"}"))
			assert.Empty(t, s.of("headgate_"+gate+"_info"))
		}
	}
}

// After Shutdown a scrape is as before.
func TestAfterShutdown(t *testing.T) {
	hg := open(t, settings())
	r := registered(t, hg)
	before := scrape(t, r).names()
	require.NoError(t, hg.Shutdown(context.Background(), nil))
	assert.Equal(t, before, scrape(t, r).names())
}

// What is not known is absent.
func TestUnknownIsAbsent(t *testing.T) {
	c := pressure.DefaultConfig()
	c.Root, c.PSI.Off, c.Collect = os.DirFS(t.TempDir()), true, false
	m, err := pressure.New(c)
	require.NoError(t, err)
	defer m.Close()
	s := scrape(t, registered(t, &headgate.Headgate{Memory: m}))
	assert.Empty(t, s.of("headgate_pressure_signal{signal=psi_some}"))
	assert.Empty(t, s.of("headgate_pressure_signal{signal=working_set}"))
	assert.Equal(t, 0.92, s.value(t, "headgate_pressure_signal_threshold{severity=critical,signal=working_set}"))
	for name := range s {
		assert.NotContains(t, name, "threshold{severity=high,signal=psi")
		assert.NotContains(t, name, "signal=oom,")
	}
	assert.Equal(t, 0.0, s.value(t, "headgate_pressure_severity"))
	assert.Equal(t, 1.0, s.value(t, "headgate_pressure_ready"))
}

// What a scrape says is what the snapshots say.
func TestValues(t *testing.T) {
	hg := busy(t)
	s := scrape(t, registered(t, hg))
	a, l, p := hg.Bytes.Snapshot(), hg.Tenants.Snapshot(), hg.Memory.Snapshot()
	for name, want := range map[string]float64{
		"headgate_admission_inflight_bytes":                                          1 << 20,
		"headgate_admission_max_inflight_bytes":                                      float64(a.MaxInflightBytes),
		"headgate_admission_max_body_bytes":                                          float64(a.MaxBodyBytes),
		"headgate_admission_inflight{weight=heavy}":                                  1,
		"headgate_admission_inflight{weight=light}":                                  0,
		"headgate_admission_max_heavy_inflight":                                      float64(a.CountCap),
		"headgate_admission_admitted_total":                                          1,
		"headgate_lanes_limit":                                                       float64(l.Limit),
		"headgate_lanes_min_limit":                                                   8,
		"headgate_lanes_max_limit":                                                   1000,
		"headgate_lanes_inflight":                                                    1,
		"headgate_lanes_inflight_cost":                                               float64(l.InflightCost),
		"headgate_lanes_tenant_lanes":                                                1,
		"headgate_lanes_admitted_total":                                              1,
		"headgate_outbound_limit{lane=" + llm + "}":                                  4,
		"headgate_outbound_reserve{lane=" + llm + "}":                                1,
		"headgate_outbound_inflight{lane=" + llm + "}":                               1,
		"headgate_outbound_granted_total{lane=" + llm + "}":                          1,
		"headgate_outbound_verdict{lane=" + llm + ",verdict=busy}":                   1,
		"headgate_outbound_verdict{lane=" + llm + ",verdict=idle}":                   0,
		"headgate_outbound_info{mode=enforce}":                                       1,
		"headgate_lanes_info{algorithm=gradient,mode=enforce,virtual_lanes=true}":    1,
		"headgate_admission_info{budget_source=" + a.BudgetSource + ",mode=enforce}": 1,
		"headgate_pressure_info{ceiling_source=" + p.CeilingSource + "}":             1,
	} {
		assert.Equal(t, want, s.value(t, name), name)
	}
	assert.Positive(t, l.InflightCost)
	assert.Len(t, s.of("headgate_outbound_verdict"), 5)
	assert.Equal(t, 1.0, s.of("headgate_outbound_verdict").sum())
}

// Shadow mode counts what would have become of requests.
func TestShadow(t *testing.T) {
	c := settings()
	c.Inflight.Mode, c.Inflight.MaxInflight, c.Inflight.InteractiveReserve, c.Inflight.MaxQueue = gate.Shadow, 1, 0, 1
	hg := open(t, c)
	for range 3 {
		lease, err := hg.Outbound.Acquire(context.Background(), gate.Request{Lane: llm})
		require.NoError(t, err)
		defer lease.Release()
	}
	s := scrape(t, registered(t, hg))
	for _, outcome := range []string{"admit", "queue", "refuse"} {
		assert.Equal(t, 1.0, s.value(t, "headgate_outbound_shadow_total{outcome="+outcome+"}"))
	}
	assert.Equal(t, 0.0, s.of("headgate_outbound_sheds_total").sum())
}

// A pause that a back end has asked for is seen.
func TestPaused(t *testing.T) {
	hg := limiter(t, func(c *inflight.Config) { c.MaxInflight = 1 })
	hg.Outbound.Pause(llm, time.Minute)
	s := scrape(t, registered(t, hg))
	assert.InDelta(t, 60, s.value(t, "headgate_outbound_paused_seconds{lane="+llm+"}"), 30)
}
