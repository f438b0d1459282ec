package llmcost

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/headgate-go/headgate/core/lanes"
)

// The dumb model: encoding/json takes the body apart, level by level, and every field is
// looked up by all of its names.

type member struct {
	key   string
	value json.RawMessage
}

// members are the fields of an object, in order and with what is there twice; none for
// what is no object.
func members(raw json.RawMessage) (all []member) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			panic(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			panic(err)
		}
		all = append(all, member{key.(string), value})
	}
	return all
}

// items are those of a list; ok is false for what is none.
func items(raw json.RawMessage) (all []json.RawMessage, ok bool) {
	if raw[0] != '[' {
		return nil, false
	}
	return all, json.Unmarshal(raw, &all) == nil
}

// measure returns how many values there are in one and how deep they are nested.
func measure(raw json.RawMessage) (values, depth int) {
	inner, isList := items(raw)
	for _, m := range members(raw) {
		inner = append(inner, m.value)
	}
	values = 1
	for _, v := range inner {
		n, d := measure(v)
		values, depth = values+n, max(depth, d)
	}
	if isList || raw[0] == '{' {
		depth++
	}
	return values, depth
}

// simple is a key without its spelling.
func simple(key string) string {
	return strings.NewReplacer("_", "", "\u212a", "k", "ſ", "s").Replace(strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, key))
}

// values are those of all fields with one of the names.
func values(all []member, names ...string) (found []json.RawMessage) {
	for _, m := range all {
		for _, name := range names {
			if simple(m.key) == name {
				found = append(found, m.value)
			}
		}
	}
	return found
}

func modelList(raw json.RawMessage, of func(json.RawMessage) int64) (n int64) {
	if string(raw) == "null" {
		return 0
	}
	all, ok := items(raw)
	if !ok {
		all = []json.RawMessage{raw}
	}
	for _, v := range all {
		n += of(v)
	}
	return n
}

func one(json.RawMessage) int64 { return 1 }

// functions are those of a tool.
func functions(tool json.RawMessage) int64 {
	most := int64(1)
	for _, v := range values(members(tool), "functiondeclarations") {
		most = max(most, modelList(v, one))
	}
	return most
}

var farExponent = regexp.MustCompile(`([eE][+-]?)0*[1-9]\d{4,}$`)

func modelNumber(raw json.RawMessage) int64 {
	s := strings.TrimSpace(strings.Trim(string(raw), `"`))
	switch {
	case string(raw) == "null":
		return 0
	case len(raw) > 64 || strings.Trim(s, "+-.0123456789eE") != "" || !strings.ContainsAny(string(raw[:1]), `"-0123456789`):
		return math.MaxInt64
	}
	s = farExponent.ReplaceAllString(s, "${1}9999") // big would refuse it, or take it for 0
	f, _, err := big.ParseFloat(s, 10, 2000, big.ToPositiveInf)
	if err != nil || f.IsInf() && f.Sign() > 0 {
		return math.MaxInt64
	}
	if f.Sign() <= 0 {
		return 0
	}
	n, accuracy := f.Int64()
	if accuracy == big.Below && n < math.MaxInt64 {
		n++
	}
	return n
}

func modelFeatures(body []byte) (f lanes.Features, ok bool) {
	f = lanes.Features{Bytes: int64(len(body)), Messages: 1}
	if len(body) == 0 || len(body) > 994<<14 {
		return f, true
	}
	if !json.Valid(body) {
		return f, false
	}
	raw := json.RawMessage(bytes.Trim(body, " \t\r\n"))
	if n, depth := measure(raw); n > 65_536 || depth > 128 {
		return f, false
	}
	all := members(raw)
	for _, m := range all {
		if simple(m.key) == "request" {
			all = append(all, members(m.value)...)
		}
	}
	most := func(of func(json.RawMessage) int64, found []json.RawMessage) (n int64) {
		for _, v := range found {
			n = max(n, of(v))
		}
		return n
	}
	count := func(v json.RawMessage) int64 { return modelList(v, one) }
	numbers := all
	for _, config := range values(all, "generationconfig") {
		numbers = append(numbers, members(config)...)
	}
	f.Tokens = most(modelNumber, values(numbers, "maxtokens", "maxcompletiontokens", "maxoutputtokens"))
	f.N = most(modelNumber, values(numbers, "n", "candidatecount"))
	f.Messages = most(count, values(all, "messages", "input", "contents"))
	f.Messages += min(1, most(func(v json.RawMessage) int64 {
		if string(v) == "null" {
			return 0
		}
		return 1
	}, values(all, "system", "instructions", "systeminstruction")))
	f.Messages = max(f.Messages, 1)
	f.Tools = most(func(v json.RawMessage) int64 { return modelList(v, functions) }, values(all, "tools")) +
		most(count, values(all, "functions"))
	for _, m := range all {
		f.Stream = f.Stream || m.key == "stream" && string(m.value) == "true"
	}
	for _, v := range values(all, "stream") {
		f.Stream = f.Stream && string(v) == "true"
	}
	return f, true
}

// modelled tells whether encoding/json leaves the body's text as it is.
func modelled(body []byte) bool { return utf8.Valid(body) }
