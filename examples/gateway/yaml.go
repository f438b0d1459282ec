package main

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decodeStrict sets what a YAML document holds into the struct at into. It is
// stricter than the yaml package, which takes a key without a value for no key and
// cuts 1.5 to 1, and its errors say which key was wrong. After an error into may be
// half set.
func decodeStrict(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || doc.Content[0].Tag == "!!null") {
		return errors.New("the file is empty")
	}
	if err != nil { // what it quotes may be a tenant's key
		return errors.New(quoted.ReplaceAllString(err.Error(), "(not shown)"))
	}
	if !errors.Is(d.Decode(&more), io.EOF) {
		return errors.New("there is more after the first YAML document")
	}
	return set(reflect.ValueOf(into).Elem(), doc.Content[0], "")
}

// quoted is what the yaml package repeats of a document.
var quoted = regexp.MustCompile("'[^']*'|`[^`]*`|\"[^\"]*\"")

// secret reports whether what stands at path must not be shown: it may be a
// tenant's key, wherever below tenants somebody has put it.
func secret(path string) bool { return strings.HasPrefix(path, "tenants") || path == "monitor_key" }

// set sets v to what n holds. path is where n stands: "admission.queue_timeout".
func set(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	_, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case n.Tag == "!!null":
		return fmt.Errorf("line %d: %s has no value", n.Line, path)
	case isText:
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return set(v.Elem(), n, path)
	case v.Kind() == reflect.Struct:
		return setFields(v, n, path)
	case v.Kind() == reflect.Map:
		return setEntries(v, n, path)
	case v.Kind() == reflect.Slice:
		return setItems(v, n, path)
	case v.CanInt() && n.Tag == "!!float":
		return wrong(v, n, path, nil)
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		return wrong(v, n, path, err)
	}
	return nil
}

func setFields(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind != yaml.MappingNode {
		return wrong(v, n, path, nil)
	}
	fields, seen := fieldsByKey(v), map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		field, known := fields[key.Value]
		switch {
		case !known && secret(path):
			return fmt.Errorf("line %d: %s has an unknown key (not shown)", key.Line, path)
		case !known:
			return fmt.Errorf("line %d: unknown key %.80q", key.Line, at)
		case seen[key.Value]:
			return fmt.Errorf("line %d: the key %q is there twice", key.Line, at)
		}
		seen[key.Value] = true
		if err := set(field, value, at); err != nil {
			return err
		}
	}
	return nil
}

// setEntries replaces the map in v, whose keys are text.
func setEntries(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind != yaml.MappingNode {
		return wrong(v, n, path, nil)
	}
	entries := reflect.MakeMap(v.Type())
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := fmt.Sprintf("%s[%.80q]", path, key.Value)
		if strings.Contains(key.Value, "@") { // it may be a URL with a password
			at = path + "[(not shown)]"
		}
		if entries.MapIndex(reflect.ValueOf(key.Value)).IsValid() {
			return fmt.Errorf("line %d: the key %s is there twice", key.Line, at)
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		if err := set(entry, value, at); err != nil {
			return err
		}
		entries.SetMapIndex(reflect.ValueOf(key.Value), entry)
	}
	v.Set(entries)
	return nil
}

// setItems replaces the list in v.
func setItems(v reflect.Value, n *yaml.Node, path string) error {
	if n.Kind != yaml.SequenceNode {
		return wrong(v, n, path, nil)
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if d, ok := list.Index(i).Addr().Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		if err := set(list.Index(i), item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// fieldsByKey returns the fields of a struct by their YAML key.
func fieldsByKey(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		switch key, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); {
		case option == "inline":
			for key, field := range fieldsByKey(v.Field(i)) {
				fields[key] = field
			}
		case key != "" && key != "-":
			fields[key] = v.Field(i)
		}
	}
	return fields
}

// wrong says that n cannot be the value of v. The yaml package's own errors do not
// name the key, so only those of types that read themselves are repeated.
func wrong(v reflect.Value, n *yaml.Node, path string, err error) error {
	var mismatch *yaml.TypeError
	if err == nil || errors.As(err, &mismatch) || secret(path) {
		err = errors.New("want " + kindOf(v))
	}
	if path == "" {
		path = "the document"
	}
	value := fmt.Sprintf("%.40q", n.Value)
	switch n.Kind {
	case yaml.MappingNode:
		value = "a mapping"
	case yaml.SequenceNode:
		value = "a list"
	case yaml.ScalarNode:
		if secret(path) {
			value = "not shown"
		}
	}
	return fmt.Errorf("line %d: %s is %s: %w", n.Line, path, value, err)
}

func kindOf(v reflect.Value) string {
	_, isText := v.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isText:
		return "one value"
	case v.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 1m30s"
	case v.Kind() == reflect.Struct || v.Kind() == reflect.Map:
		return "a mapping"
	case v.Kind() == reflect.Slice:
		return "a list"
	case v.CanInt():
		return "a whole number"
	case v.CanFloat():
		return "a number"
	case v.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}
