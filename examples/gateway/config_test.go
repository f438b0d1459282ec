package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/core/admission"
	"github.com/headgate-go/headgate/core/gate"
	"github.com/headgate-go/headgate/core/inflight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func base(t *testing.T) config {
	t.Helper()
	c, err := defaultConfig(noenv)
	require.NoError(t, err)
	return c
}

func TestParseConfig(t *testing.T) {
	c, err := parseConfig([]byte(`
# every key
admission:
  mode: shadow
  max_inflight_bytes: 64MiB
  queue_timeout: 1m30s
  max_waiters: 0x10
  max_queued_bytes: 1000000
  heavy_bytes: 300KB
  hard_max_body_bytes: 2GiB
  max_heavy_in_flight: 5
  healthy_headroom: -1
  heap_shed_ratio: 1
  exempt: [/a, "/b"]
  max_exempt: 7
  factors:
    - {content_type: application/json, times: 2}
    - route: POST /echo
      times: 1.5
  release_at: return
  body_idle: 1s
  body_timeout: 2s
  min_body_rate: 0
  min_body_rate_waiting: 1B
  max_decoded_bytes: 1TiB
log_level: warn
drain_timeout: 3s
`), base(t))
	require.NoError(t, err)
	assert.Equal(t, admission.Config{
		Mode: gate.Shadow, MaxInflightBytes: 64 << 20, QueueTimeout: 90 * time.Second, MaxWaiters: 16,
		MaxQueuedBytes: 1_000_000, HeavyBytes: 300_000, HardMaxBodyBytes: 2 << 30, MaxHeavyInFlight: 5,
		HealthyHeadroom: -1, HeapShedRatio: 1, Exempt: []string{"/a", "/b"}, MaxExempt: 7,
		Factors:   []admission.Factor{{ContentType: "application/json", Times: 2}, {Route: "POST /echo", Times: 1.5}},
		ReleaseAt: admission.Return, BodyIdle: time.Second, BodyTimeout: 2 * time.Second, MinBodyRateWaiting: 1,
		MaxDecodedBytes: 1 << 40,
	}, c.Admission)
	assert.Equal(t, slog.LevelWarn, c.LogLevel)
	assert.Equal(t, 3*time.Second, c.DrainTimeout)
}

// What the file does not name stays as the environment and the defaults have it.
func TestParseConfigOverEnvironment(t *testing.T) {
	env := map[string]string{"HEADGATE_MAX_INFLIGHT_BYTES": "16MiB", "HEADGATE_HEAVY_BYTES": "1MiB"}
	under, err := defaultConfig(func(name string) string { return env[name] })
	require.NoError(t, err)
	c, err := parseConfig([]byte("admission: {heavy_bytes: 2MiB, max_heavy_in_flight: -1}"), under)
	require.NoError(t, err)
	assert.EqualValues(t, 16<<20, c.Admission.MaxInflightBytes, "from the environment")
	assert.EqualValues(t, 2<<20, c.Admission.HeavyBytes, "from the file, over the environment")
	assert.Equal(t, admission.DefaultConfig().QueueTimeout, c.Admission.QueueTimeout, "from the defaults")
	assert.Equal(t, []string{"/healthz", "/readyz"}, c.Admission.Exempt, "from the example")

	c, err = parseConfig([]byte("admission: {exempt: []}"), under)
	require.NoError(t, err)
	assert.Empty(t, c.Admission.Exempt)
	assert.Equal(t, []string{"/healthz", "/readyz"}, under.Admission.Exempt)

	c, err = parseConfig([]byte("{}"), under)
	require.NoError(t, err)
	assert.Equal(t, under, c)
}

// A configuration that is written out reads back as the same.
func TestParseConfigReadsWhatIsWritten(t *testing.T) {
	want := base(t)
	want.Admission.Factors = []admission.Factor{{Route: "/r", ContentType: "a/b", Times: 0.25}}
	want.Tenants = []tenant{{Name: "n", Key: "k", Interactive: true, MaySetClass: true, Weight: 5}}
	want.Inflight.Models = []string{"large", "small"}
	want.Lanes.Exempt = []string{"/x"}
	limit, timeout := 3, 90*time.Second
	want.Inflight.Lanes = map[string]inflight.Override{
		"http://127.0.0.1:1|large": {MaxInflight: &limit, QueueTimeout: &timeout, InteractiveReserve: &limit, MaxQueue: &limit, AgingStep: &timeout},
	}
	text, err := yaml.Marshal(want)
	require.NoError(t, err)
	got, err := parseConfig(text, base(t))
	require.NoError(t, err, string(text))
	assert.Equal(t, want, got)
}

// Limits by lane: what an entry does not name is that of all lanes.
func TestParseConfigInflight(t *testing.T) {
	c, err := parseConfig([]byte(`
inflight:
  mode: shadow
  max_inflight: 6
  queue_timeout: 40s
  interactive_reserve: 2
  max_queue: 50
  aging_step: 30s
  slow_wait: 10s
  max_lanes: 20
  lanes:
    https://llm.example.com|large: {max_inflight: 2, queue_timeout: 1m}
    https://llm.example.com|other: {interactive_reserve: 0}
  models: [large, small]
`), base(t))
	require.NoError(t, err)
	two, none, minute := 2, 0, time.Minute
	assert.Equal(t, outbound{
		Config: inflight.Config{
			Mode: gate.Shadow, MaxInflight: 6, QueueTimeout: 40 * time.Second, InteractiveReserve: 2, MaxQueue: 50,
			AgingStep: 30 * time.Second, SlowWait: 10 * time.Second, MaxLanes: 20,
			Lanes: map[string]inflight.Override{
				"https://llm.example.com|large": {MaxInflight: &two, QueueTimeout: &minute},
				"https://llm.example.com|other": {InteractiveReserve: &none},
			},
		},
		Models: []string{"large", "small"},
	}, c.Inflight)
	assert.Equal(t, 30*time.Second, base(t).Inflight.QueueTimeout, "the default here")
}

// Every error names the key, or the field, and the value, and takes nothing over.
func TestParseConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "the file is empty",
		" \n\t\n":                           "the file is empty",
		"# only a remark":                   "the file is empty",
		"---\n":                             "the file is empty",
		"null":                              "the file is empty",
		"{":                                 "did not find expected node content",
		"admission:\n\tmode: off":           "line 2: found character that cannot start any token",
		"admission: {}\n---\nadmission: {}": "there is more after the first YAML document",
		"{}\n--- \n":                        "there is more after the first YAML document",
		"admission: {}\n---\n{":             "there is more after the first YAML document",
		"\x00":                              "control characters are not allowed",
		"[]":                                `line 1: the document is a list: want a mapping`,
		"64MiB":                             `line 1: the document is "64MiB": want a mapping`,
		"admission: 3":                      `line 1: admission is "3": want a mapping`,
		"admission: [a]":                    `line 1: admission is a list: want a mapping`,
		"admission:":                        `line 1: admission has no value`,

		"inflight: {lanes: [a]}":                                  `line 1: inflight.lanes is a list: want a mapping`,
		"inflight: {lanes: {a: 3}}":                               `line 1: inflight.lanes["a"] is "3": want a mapping`,
		"inflight: {lanes: {a: {max: 3}}}":                        `line 1: unknown key "inflight.lanes[\"a\"].max"`,
		"inflight: {lanes: {a: {max_queue: x}}}":                  `line 1: inflight.lanes["a"].max_queue is "x": want a whole number`,
		"inflight: {lanes: {a: {max_queue: }}}":                   `line 1: inflight.lanes["a"].max_queue has no value`,
		"inflight: {lanes: {a: {aging_step: 3}}}":                 `line 1: inflight.lanes["a"].aging_step is "3": want a duration such as 1m30s`,
		"inflight: {lanes: {a: {}, a: {}}}":                       `line 1: the key inflight.lanes["a"] is there twice`,
		"inflight: {lanes: {a: {max_inflight: -2}}}":              `inflight: Lanes["a"].MaxInflight is -2`,
		"inflight: {lanes: {http://h: {}}}":                       `inflight.lanes has a key without |`,
		"inflight: {lanes: {'http://h|m': {}}}":                   `inflight.lanes has an entry for the model "m", which is not one of inflight.models`,
		"inflight: {models: [m], lanes: {'http://H/|m': {}}}":     `the model "m" whose URL is not written as lanes are`,
		"inflight: {models: [m], lanes: {'http://u:pw@h|m': {}}}": `inflight`,
		"inflight: {lanes: {'http://u:secretpw@h|m': {nope: 1}}}": `line 1: unknown key "inflight.lanes[(not shown)].nope"`,
		"inflight: {max_inflight: -1}":                            `inflight: MaxInflight is -1`,
		"inflight: {models: ['']}":                                `inflight.models[0] has 0 bytes: want 1 to 128`,
		"inflight: {queue_timeout: 30}":                           `line 1: inflight.queue_timeout is "30": want a duration such as 1m30s`,
		"mode: off":                                               `line 1: unknown key "mode"`,
		"admission:\n  mode: off\n  max: 1":                       `line 3: unknown key "admission.max"`,
		"admission: {MaxWaiters: 1}":                              `line 1: unknown key "admission.MaxWaiters"`,
		"logger: x":                                               `line 1: unknown key "logger"`,
		"admission: {factors: [{tims: 2}]}":                       `line 1: unknown key "admission.factors[0].tims"`,
		"admission: {<<: {mode: off}}":                            `line 1: unknown key "admission.<<"`,
		"admission: {1: 1}":                                       `line 1: unknown key "admission.1"`,
		"log_level: info\nlog_level: info":                        `line 2: the key "log_level" is there twice`,
		"admission: {mode: off, mode: enforce}":                   `the key "admission.mode" is there twice`,

		"admission: {mode: on}":                                `line 1: admission.mode is "on": mode "on": want off, shadow or enforce`,
		"admission: {mode: [off]}":                             `line 1: admission.mode is a list: want one value`,
		"admission: {queue_timeout: 15}":                       `line 1: admission.queue_timeout is "15": want a duration such as 1m30s`,
		"admission: {queue_timeout: soon}":                     `line 1: admission.queue_timeout is "soon": want a duration such as 1m30s`,
		"admission: {queue_timeout: null}":                     `line 1: admission.queue_timeout has no value`,
		"admission: {queue_timeout: ~}":                        `line 1: admission.queue_timeout has no value`,
		"admission: {max_inflight_bytes: '10MB '}":             `line 1: admission.max_inflight_bytes is "10MB ": size "10MB "`,
		"admission: {max_inflight_bytes: 1.5MiB}":              `line 1: admission.max_inflight_bytes is "1.5MiB": size`,
		"admission: {max_inflight_bytes: 1e9}":                 `line 1: admission.max_inflight_bytes is "1e9": size`,
		"admission: {max_inflight_bytes: {}}":                  `line 1: admission.max_inflight_bytes is a mapping: want one value`,
		"admission: {max_waiters: 1.5}":                        `line 1: admission.max_waiters is "1.5": want a whole number`,
		"admission: {max_waiters: .inf}":                       `line 1: admission.max_waiters is ".inf": want a whole number`,
		"admission: {max_waiters: '5'}":                        `line 1: admission.max_waiters is "5": want a whole number`,
		"admission: {max_waiters: 99999999999999999999}":       `line 1: admission.max_waiters is "99999999999999999999": want a whole number`,
		"admission: {heap_shed_ratio: 75%}":                    `line 1: admission.heap_shed_ratio is "75%": want a number`,
		"admission: {heap_shed_ratio: 1e400}":                  `line 1: admission.heap_shed_ratio is "1e400": want a number`,
		"admission: {exempt: /healthz}":                        `line 1: admission.exempt is "/healthz": want a list`,
		"admission: {exempt: [/a, {}]}":                        `line 1: admission.exempt[1] is a mapping: want text`,
		"admission: {exempt: [~]}":                             `line 1: admission.exempt[0] has no value`,
		"admission:\n  factors:\n  - {route: /, times: twice}": `line 3: admission.factors[0].times is "twice": want a number`,
		"a: &a {b: *a}":                                        `line 1: unknown key "a"`,
		"admission: {exempt: &a [*a]}":                         `admission.exempt[0]`,
		"log_level: loud":                                      `line 1: log_level is "loud": slog: level string "loud"`,
		"drain_timeout: 10":                                    `line 1: drain_timeout is "10": want a duration such as 1m30s`,
		"log_level: " + strings.Repeat("x", 5000):              `line 1: log_level is "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"`,

		"drain_timeout: 0s":                            `drain_timeout is 0s: want above 0s`,
		"drain_timeout: -1s":                           `drain_timeout is -1s: want above 0s`,
		"admission: {max_inflight_bytes: 0}":           `admission: MaxInflightBytes is 0: want at least 1`,
		"admission: {max_inflight_bytes: -5}":          `admission: MaxInflightBytes is -5: want at least 1`,
		"admission: {heap_shed_ratio: .nan}":           `admission: HeapShedRatio is NaN: want above 0`,
		"admission: {queue_timeout: -1s}":              `admission: QueueTimeout is -1`,
		"admission: {exempt: [healthz]}":               `admission: Exempt[0] is healthz`,
		"admission: {factors: [{route: /}]}":           `admission: Factors[0].Times is 0: want above 0`,
		"log_level: debug\nadmission: {max_exempt: 0}": `admission: MaxExempt is 0: want at least 1`,
	} {
		under := base(t)
		got, err := parseConfig([]byte(text), under)
		if assert.Error(t, err, "%q", text) {
			assert.Contains(t, err.Error(), want, "%q", text)
			assert.Less(t, len(err.Error()), 6000)
		}
		assert.Equal(t, under, got, "%q", text)
		assert.Equal(t, base(t), under, "%q", text)
	}
}

func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	text, err := readConfig(file)
	require.NoError(t, err)
	assert.Equal(t, "{}", string(text))

	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "none",
		dir:                        "is not a regular file",
		os.DevNull:                 "is not a regular file",
	} {
		_, err := readConfig(path)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(file, make([]byte, maxConfig), 0o600))
	_, err = readConfig(file)
	assert.NoError(t, err)
	require.NoError(t, os.WriteFile(file, make([]byte, maxConfig+1), 0o600))
	_, err = readConfig(file)
	assert.ErrorContains(t, err, "is larger than 1048576 bytes")
}

// Whatever a file holds, it is an error and changes nothing, or it is a
// configuration that works.
func FuzzParseConfig(f *testing.F) {
	f.Add("admission: {max_inflight_bytes: 8MiB, exempt: [/a], factors: [{route: /, times: 2}]}\nlog_level: debug")
	f.Add("admission: &a {factors: *a}")
	f.Add("a: !!binary x\n---\n")
	f.Add("admission: {mode: !!int 3, heap_shed_ratio: !!null ''}")
	under, err := defaultConfig(noenv)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig([]byte(text), under)
		if err != nil {
			require.Equal(t, under, c)
			return
		}
		require.NoError(t, c.Validate())
	})
}

// The file that the README speaks of works.
func TestShippedConfig(t *testing.T) {
	text, err := readConfig("gateway.yaml")
	require.NoError(t, err)
	c, err := parseConfig(text, base(t))
	require.NoError(t, err)
	assert.EqualValues(t, 8<<20, c.Admission.MaxInflightBytes)
}
