package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Wherever a tenant's key stands in a broken file, no error repeats it: errors of a
// reload go to the log.
func TestErrorsShowNoKey(t *testing.T) {
	base, err := defaultConfig(func(string) string { return "" })
	require.NoError(t, err)
	for _, text := range []string{
		"tenants:\n- name: acme\n  key: *sk-topsecret\n",
		"tenants:\n- name: acme\n  key: !sk-topsecret x\n  weight: -1\n",
		"tenants:\n- name: acme\n  key: %sk-topsecret\n",
		"tenants:\n- name: acme\n  sk-topsecret: x\n",
		"tenants:\n- {name: acme, sk-topsecret}\n",
		"tenants:\n- name: acme\n  key: \"sk-topsecret\\q\"\n",
		"tenants:\n- name: acme\n  ? sk-topsecret\n",
		"tenants:\n- name: acme\n  key: |sk-topsecret\n",
		"tenants: sk-topsecret\n",
		"tenants: [sk-topsecret]\n",
		"tenants:\n- name: acme\n  key: [sk-topsecret]\n",
		"tenants:\n- name: acme\n  weight: !!int sk-topsecret\n",
		"tenants:\n- name: acme\n  key: !!int sk-topsecret\n",
		"tenants:\n- name: acme\n  interactive: sk-topsecret\n",
	} {
		_, err := parseConfig([]byte(text), base)
		if assert.Error(t, err, text) {
			assert.NotContains(t, err.Error(), "topsecret", text)
		}
	}
}
