package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/core/gate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// threeTenants are a configuration of tenants. Keys and names are easy to find in a log.
const threeTenants = `
tenants:
  - {name: tenant-alice, key: secret-alice, interactive: true, weight: 10}
  - {name: tenant-batch, key: secret-batch, may_set_class: true}
  - {name: tenant-plain, key: "secret~plain/+.=="}
`

// requireNoSecrets checks that no text holds a key or the name of a tenant.
func requireNoSecrets(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, secret := range []string{"secret", "tenant-", digest([]byte("secret-alice")).SHA256} {
			require.NotContains(t, text, secret)
		}
	}
}

func TestParseTenants(t *testing.T) {
	c, err := parseConfig([]byte(threeTenants), base(t))
	require.NoError(t, err)
	assert.Equal(t, []tenant{
		{Name: "tenant-alice", Key: "secret-alice", Interactive: true, Weight: 10},
		{Name: "tenant-batch", Key: "secret-batch", MaySetClass: true, Weight: 1},
		{Name: "tenant-plain", Key: "secret~plain/+.==", Weight: 1},
	}, c.Tenants)

	c, err = parseConfig([]byte("tenants: []"), base(t))
	require.NoError(t, err)
	assert.Empty(t, c.Tenants)

	long := strings.Repeat("k", 4096)
	c, err = parseConfig([]byte("tenants: [{name: "+long[:128]+", key: "+long+", weight: 1000}, {name: 7, key: 12345}]"), base(t))
	require.NoError(t, err)
	assert.Equal(t, "12345", c.Tenants[1].Key, "as it is written")
}

// Every error names the tenant's place and the field, and never the value: it may be a
// key.
func TestParseTenantsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"tenants:":                                                                         "line 1: tenants has no value",
		"tenants: secret-a":                                                                "line 1: tenants is not shown: want a list",
		"tenants: {tenant-a: secret-a}":                                                    "line 1: tenants is a mapping: want a list",
		"tenants: [secret-a]":                                                              "line 1: tenants[0] is not shown: want a mapping",
		"tenants: [{name: a, key: b}, {}]":                                                 "tenants[1].name is empty",
		"tenants: [{key: secret-a}]":                                                       "tenants[0].name is empty",
		"tenants: [{name: tenant-a}]":                                                      "tenants[0].key is empty",
		"tenants: [{name: tenant-a, key: ''}]":                                             "tenants[0].key is empty",
		"tenants: [{name: tenant-a, key: }]":                                               "line 1: tenants[0].key has no value",
		"tenants: [{name: '', key: secret-a}]":                                             "tenants[0].name is empty",
		"tenants: [{name: tenant-a, key: [secret-a]}]":                                     "line 1: tenants[0].key is a list: want text",
		"tenants: [{name: tenant-a, key: {a: b}}]":                                         "line 1: tenants[0].key is a mapping: want text",
		"tenants: [{name: tenant-a, key: secret a}]":                                       "tenants[0].key has a character that a header cannot carry",
		"tenants: [{name: tenant-a, key: secret\u00fc}]":                                   "tenants[0].key has a character that a header cannot carry",
		"tenants: [{name: tenant-a, key: \"secret\\n\"}]":                                  "tenants[0].key has a character that a header cannot carry",
		"tenants: [{name: " + strings.Repeat("a", 129) + ", key: a}]":                      "tenants[0].name has 129 bytes: want at most 128",
		"tenants: [{name: a, key: " + strings.Repeat("a", 4097) + "}]":                     "tenants[0].key has 4097 bytes: want at most 4096",
		"tenants: [{name: a, key: b, weight: 0}]":                                          "tenants[0].weight is 0: want 1 to 1000",
		"tenants: [{name: a, key: b, weight: -1}]":                                         "tenants[0].weight is -1: want 1 to 1000",
		"tenants: [{name: a, key: b, weight: 1001}]":                                       "tenants[0].weight is 1001: want 1 to 1000",
		"tenants: [{name: a, key: b, weight: 1.5}]":                                        "tenants[0].weight is not shown: want a whole number",
		"tenants: [{name: a, key: b, weight: secret}]":                                     "tenants[0].weight is not shown: want a whole number",
		"tenants: [{name: a, key: b, weight: }]":                                           "tenants[0].weight has no value",
		"tenants: [{name: a, key: b, interactive: 1}]":                                     "tenants[0].interactive is not shown: want true or false",
		"tenants: [{name: a, key: b, may_set_class: maybe}]":                               "tenants[0].may_set_class is not shown: want true or false",
		"tenants: [{name: a, key: b, wieght: 1}]":                                          `tenants[0] has an unknown key`,
		"tenants: [{name: a, key: b, key: c}]":                                             `the key "tenants[0].key" is there twice`,
		"tenants: [{name: tenant-a, key: b}, {name: c, key: d}, {name: tenant-a, key: e}]": "tenants[2].name is that of tenants[0]",
		"tenants: [{name: a, key: b}, {name: c, key: secret-d}, {name: e, key: secret-d}]": "tenants[2].key is that of tenants[1]",
	} {
		under := base(t)
		got, err := parseConfig([]byte(text), under)
		if assert.Error(t, err, text) {
			assert.Contains(t, err.Error(), want, text)
			requireNoSecrets(t, err.Error())
		}
		assert.Equal(t, under, got, text)
	}
}

// Who may call the APIs, with which header.
func TestKeys(t *testing.T) {
	back := models(t, 0)
	a := start(t, threeTenants+"log_level: debug", "-upstream", back.URL)
	calls := 0
	for _, api := range apis {
		for _, c := range []struct {
			name    string
			headers []string
			status  int
		}{
			{"a key", []string{"Authorization", "Bearer secret-alice"}, 200},
			{"another", []string{"Authorization", "Bearer secret-batch"}, 200},
			{"with every kind of character", []string{"Authorization", "Bearer secret~plain/+.=="}, 200},
			{"the scheme in any case", []string{"Authorization", "bEARER secret-alice"}, 200},
			{"more spaces", []string{"Authorization", "Bearer   secret-alice"}, 200},
			{"none", nil, 401},
			{"empty", []string{"Authorization", ""}, 401},
			{"no token", []string{"Authorization", "Bearer"}, 401},
			{"an empty token", []string{"Authorization", "Bearer "}, 401},
			{"unknown", []string{"Authorization", "Bearer secret-eve"}, 401},
			{"a part", []string{"Authorization", "Bearer secret-alic"}, 401},
			{"too much", []string{"Authorization", "Bearer secret-alice2"}, 401},
			{"another case", []string{"Authorization", "Bearer SECRET-ALICE"}, 401},
			{"two words", []string{"Authorization", "Bearer secret-alice x"}, 401},
			{"no scheme", []string{"Authorization", "secret-alice"}, 401},
			{"another scheme", []string{"Authorization", "Basic secret-alice"}, 401},
			{"the name", []string{"Authorization", "Bearer tenant-alice"}, 401},
			{"two, the first right", []string{"Authorization", "Bearer secret-alice", "Authorization", "Bearer secret-eve"}, 401},
			{"in another header", []string{"X-Authorization", "Bearer secret-alice"}, 401},
			{"a very long one", []string{"Authorization", "Bearer " + strings.Repeat("secret", 2000)}, 401},
		} {
			t.Run(c.name+" "+api.path, func(t *testing.T) {
				resp, answer := a.in(t).ask(api.path, question(false, 300<<10), c.headers...)
				if c.status == 200 {
					calls++
					require.Equal(t, 200, resp.StatusCode, answer)
					return
				}
				s := requireShape(t, api.path, resp, answer, 401)
				assert.Equal(t, "Bearer", resp.Header.Get("WWW-Authenticate"))
				assert.Empty(t, resp.Header.Get("Headgate-Reason"))
				if api.format == gate.Anthropic {
					assert.Equal(t, "authentication_error", s.Error.Type)
				} else {
					assert.Equal(t, "invalid_api_key", s.Error.Code)
				}
				requireNoSecrets(t, answer)
			})
		}
	}
	for _, seen := range back.done(calls) {
		for name, values := range seen.header {
			requireNoSecrets(t, name, strings.Join(values, " "))
		}
	}
	a.logs("msg=decision")
	requireNoSecrets(t, a.log.String())
	a.untilZero()
}

// Anthropic's clients present their key in a header of its own. It counts on that API
// only, and only where there is no bearer key.
func TestAnthropicKey(t *testing.T) {
	back := models(t, 0)
	a := start(t, threeTenants, "-upstream", back.URL)
	resp, answer := a.ask("/v1/messages", question(false, 0), "X-Api-Key", "secret-alice")
	require.Equal(t, 200, resp.StatusCode, answer)
	requireNoSecrets(t, back.done(1)[0].header.Get("X-Api-Key"))

	for path, headers := range map[string][]string{
		"/v1/messages":         {"X-Api-Key", "secret-alice", "Authorization", "Bearer secret-eve"},
		"/v1/messages?a":       {"X-Api-Key", "secret-eve"},
		"/v1/messages?b":       {"X-Api-Key", "secret-alice", "X-Api-Key", "secret-alice"},
		"/v1/responses":        {"X-Api-Key", "secret-alice"},
		"/v1/chat/completions": {"X-Api-Key", "secret-alice"},
	} {
		resp, _ = a.ask(path, question(false, 0), headers...)
		assert.Equal(t, 401, resp.StatusCode, path)
	}
	// A right key in both: neither goes on.
	resp, _ = a.ask("/v1/messages", question(false, 0), "X-Api-Key", "secret-alice", "Authorization", "Bearer secret-alice")
	assert.Equal(t, 200, resp.StatusCode)
	resp, _ = a.ask("/v1/responses", question(false, 0), "X-Api-Key", "secret-alice", "Authorization", "Bearer secret-alice")
	assert.Equal(t, 200, resp.StatusCode)
	for _, seen := range back.done(3) {
		assert.NotContains(t, seen.header, "X-Api-Key")
		assert.NotContains(t, seen.header, "Authorization")
	}
}

// The other routes need no key.
func TestRoutesWithoutKey(t *testing.T) {
	a := start(t, threeTenants)
	body := random(1000)
	resp, answer := a.do(http.MethodPost, "/echo", strings.NewReader(string(body)))
	requireEcho(t, body, resp, answer)
	for _, path := range []string{"/healthz", "/headgate/status"} {
		resp, answer = a.do(http.MethodGet, path, nil)
		assert.Equal(t, 200, resp.StatusCode, answer)
		requireNoSecrets(t, answer)
	}
}

// A key is looked at after byte admission: who has none still cannot get past the
// budget, and waits like everybody.
func TestBytesBeforeKeys(t *testing.T) {
	a := start(t, smallBudget+threeTenants)
	resp, answer := a.ask("/v1/messages", strings.Repeat("x", 8*mib+1))
	s := requireShape(t, "/v1/messages", resp, answer, 413)
	assert.Equal(t, "body_exceeds_budget", s.Error.Code)

	release := a.fill()
	c := a.dial()
	c.post("/v1/messages", contentLength(2*fiberPrefetch), "Authorization: Bearer secret-eve")
	a.until("it waits", func(s status) bool { return s["waiting"] == 1 })
	release()
	resp, answer = c.answer() // nothing more of the body is sent
	requireShape(t, "/v1/messages", resp, answer, 401)
	assert.True(t, resp.Close)
	c.closed()
	a.untilZero()
}

// What a tenant's calls carry for the gates behind.
func TestIdentify(t *testing.T) {
	list := newRoster([]tenant{
		{Name: "person", Key: "p", Interactive: true, Weight: 10},
		{Name: "batch", Key: "b", MaySetClass: true, Weight: 1},
		{Name: "both", Key: "pb", Interactive: true, MaySetClass: true, Weight: 1000},
		{Name: "plain", Key: "n", Weight: 1},
	})
	for _, c := range []struct {
		key    string
		says   []string // Headgate-Class
		flow   string
		class  gate.Class
		weight int
		status int
	}{
		{key: "p", flow: "person", class: gate.Interactive, weight: 10},
		{key: "p", says: []string{"bulk"}, flow: "person", class: gate.Interactive, weight: 10},
		{key: "p", says: []string{"nonsense"}, flow: "person", class: gate.Interactive, weight: 10},
		{key: "n", flow: "plain", class: gate.Default, weight: 1},
		{key: "n", says: []string{"interactive"}, flow: "plain", class: gate.Default, weight: 1},
		{key: "b", flow: "batch", class: gate.Default, weight: 1},
		{key: "b", says: []string{"interactive"}, flow: "batch", class: gate.Interactive, weight: 1},
		{key: "b", says: []string{"default"}, flow: "batch", class: gate.Default, weight: 1},
		{key: "b", says: []string{"bulk"}, flow: "batch", class: gate.Bulk, weight: 1},
		{key: "pb", flow: "both", class: gate.Interactive, weight: 1000},
		{key: "pb", says: []string{"bulk"}, flow: "both", class: gate.Bulk, weight: 1000},
		{key: "b", says: []string{""}, status: 400},
		{key: "b", says: []string{"Bulk"}, status: 400},
		{key: "b", says: []string{"urgent"}, status: 400},
		{key: "b", says: []string{"bulk", "interactive"}, status: 400},
		{key: "b", says: []string{"bulk", "bulk"}, status: 400},
		{key: "x", says: []string{"urgent"}, status: 401},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/messages", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+c.key)
		r.Header["Headgate-Class"] = c.says
		before := r.Header.Clone()
		in, p := list.identify(apis[1], r)
		assert.Equal(t, before, r.Header, "the caller's request is not changed")
		if c.status != 0 {
			require.NotNil(t, p, c)
			assert.Equal(t, c.status, p.status, c)
			continue
		}
		require.Nil(t, p, c)
		q := gate.Request{}.In(in.Context())
		assert.Equal(t, c.flow, q.Flow, c)
		assert.Equal(t, c.class, q.Class, c)
		assert.Equal(t, c.weight, q.Weight, c)
		assert.NotContains(t, in.Header, "Authorization")
		if c.key == "b" || c.key == "pb" {
			assert.Equal(t, strings.Join(c.says, ""), in.Header.Get("Headgate-Class"))
		} else {
			assert.NotContains(t, in.Header, "Headgate-Class")
		}
	}

	// Without tenants nobody has a flow or may name a class, and keys are the back end's.
	r := httptest.NewRequest(http.MethodPost, "/v1/messages", http.NoBody)
	r.Header.Set("Authorization", "Bearer mine")
	r.Header.Set("Headgate-Class", "interactive")
	in, p := new(roster).identify(apis[1], r)
	require.Nil(t, p)
	assert.Equal(t, gate.Request{Class: gate.Default, Weight: 1}, gate.Request{}.In(in.Context()))
	assert.Equal(t, "Bearer mine", in.Header.Get("Authorization"))
	assert.NotContains(t, in.Header, "Headgate-Class")
}

// A class goes on where it was allowed, and one that does not exist is 400.
func TestClassHeader(t *testing.T) {
	back := models(t, 0)
	a := start(t, threeTenants, "-upstream", back.URL)
	for _, api := range apis {
		resp, answer := a.ask(api.path, question(false, 300<<10), "Authorization", "Bearer secret-batch", "Headgate-Class", "urgent")
		s := requireShape(t, api.path, resp, answer, 400)
		assert.Equal(t, `Headgate-Class: class "urgent": want interactive, default or bulk`, s.Error.Message)
	}
	for _, key := range []string{"secret-batch", "secret-alice"} {
		resp, answer := a.ask("/v1/responses", question(false, 0), "Authorization", "Bearer "+key, "Headgate-Class", "bulk")
		require.Equal(t, 200, resp.StatusCode, answer)
	}
	calls := back.done(2)
	assert.Equal(t, "bulk", calls[0].header.Get("Headgate-Class"))
	assert.NotContains(t, calls[1].header, "Headgate-Class")
	a.untilZero()
}

// A changed list counts for the next call; calls that run go on. A list that cannot
// work changes nothing.
func TestReloadTenants(t *testing.T) {
	back := models(t, 0)
	a := start(t, threeTenants, "-upstream", back.URL)
	status := func(key string) int {
		resp, _ := a.ask("/v1/messages", question(false, 0), "Authorization", "Bearer "+key)
		return resp.StatusCode
	}
	eventually := func(key string, want int) {
		t.Helper()
		require.Eventually(t, func() bool { return status(key) == want }, hang, 5e6, "never %d", want)
	}
	require.Equal(t, 200, status("secret-alice"))
	require.Equal(t, 401, status("secret-new"))

	a.write("tenants: [{name: tenant-alice, key: secret-new}]")
	eventually("secret-new", 200)
	require.Equal(t, 401, status("secret-alice"), "the old key")
	require.Equal(t, 401, status("secret-batch"), "a tenant that is gone")

	for yaml, why := range map[string]string{
		"tenants: [{name: a, key: secret-alice}, {name: a, key: secret-b}]": "tenants[1].name is that of tenants[0]",
		"tenants: [{name: a, key: secret-alice, weight: 0}]":                "tenants[0].weight is 0",
		"tenants: [{name: tenant-a, kye: secret-alice}]":                    "tenants[0] has an unknown key",
	} {
		a.write(yaml)
		a.logs(why)
		require.Equal(t, 401, status("secret-alice"))
		require.Equal(t, 200, status("secret-new"))
	}
	a.write("tenants: []")
	eventually("whoever", 200)
	a.logs("tenants=0")
	a.write(threeTenants)
	eventually("whoever", 401)
	require.Equal(t, 200, status("secret-alice"))
	requireNoSecrets(t, strings.ReplaceAll(a.log.String(), "tenants", ""))
	a.untilZero()
}

// A call that runs is not cut when its tenant goes.
func TestReloadTenantsBesideACall(t *testing.T) {
	next := make(chan struct{})
	back := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-next
		w.WriteHeader(http.StatusNoContent)
	}))
	a := start(t, threeTenants, "-upstream", back.URL)
	answered := make(chan int, 1)
	go func() {
		resp, err := a.client.Do(a.request("/v1/messages", "{}", "Authorization", "Bearer secret-alice"))
		if assert.NoError(t, err) {
			resp.Body.Close()
			answered <- resp.StatusCode
		}
	}()
	a.until("it runs", func(s status) bool { return s["inflight"] == 1 })
	a.write("tenants: [{name: other, key: other}]")
	a.logs("config applied")
	close(next)
	assert.Equal(t, 204, <-answered)
	a.untilZero()
}

// A key for the back end takes the place of the client's, as each API wants it.
func TestUpstreamKey(t *testing.T) {
	back := models(t, 0)
	t.Setenv("GATEWAY_UPSTREAM_KEY", "the-key")
	calls := 0
	for _, yaml := range []string{"", threeTenants} {
		a := startProcess(t, yaml, "-upstream", back.URL)
		for _, api := range apis {
			resp, answer := a.ask(api.path, question(false, 0), "Authorization", "Bearer secret-alice", "X-Api-Key", "secret-alice")
			require.Equal(t, 200, resp.StatusCode, answer)
			calls++
			h := back.done(calls)[calls-1].header
			if api.format == gate.Anthropic {
				assert.Equal(t, "the-key", h.Get("X-Api-Key"))
				assert.NotContains(t, h, "Authorization")
			} else {
				assert.Equal(t, "Bearer the-key", h.Get("Authorization"))
				assert.NotContains(t, h, "X-Api-Key")
			}
		}
		a.signal()
		assert.Zero(t, a.exit())
		assert.NotContains(t, a.log.String(), "the-key")
	}
}
