// Package specs decodes the specifications of supervise, strictly: a type for each verb, with the fields of its class in
// operator/securebench/protocol/supervise.py.
package specs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// Decode reads one JSON object strictly: exact field names, no duplicates, no nulls where a
// value belongs, nothing after the object.
func Decode(text string, target any) error {
	if !utf8.ValidString(text) {
		return errors.New("specification is not UTF-8")
	}
	raw := []byte(text)
	if err := checkDuplicates(json.NewDecoder(bytes.NewReader(raw))); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	if err := checkNames(raw, reflect.TypeOf(target).Elem(), ""); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	return nil
}

// Strict reads a JSON object that somebody else may have written: what decoders could see differently is
// an error.
func Strict(raw []byte, target any) error {
	if !utf8.Valid(raw) || hasLoneSurrogate(string(raw)) {
		return errors.New("not Unicode")
	}
	if err := checkDuplicates(json.NewDecoder(bytes.NewReader(raw))); err != nil {
		return err
	}
	return json.Unmarshal(raw, target)
}

// checkDuplicates reads one value and requires that nothing follows it.
func checkDuplicates(decoder *json.Decoder) error {
	decoder.UseNumber()
	if err := checkValue(decoder); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("bytes after the object")
	}
	return nil
}

func checkValue(decoder *json.Decoder) error {
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	delim, composite := token.(json.Delim)
	if !composite {
		return nil
	}
	seen := map[string]bool{}
	for decoder.More() {
		if delim == '{' {
			key, err := decoder.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if seen[name] {
				return fmt.Errorf("duplicate key %q", name)
			}
			seen[name] = true
		}
		if err := checkValue(decoder); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

// checkNames compares the keys with the fields exactly; encoding/json ignores case.
func checkNames(raw json.RawMessage, kind reflect.Type, place string) error {
	if kind.Kind() == reflect.Pointer {
		if string(raw) == "null" {
			return nil
		}
		kind = kind.Elem()
	}
	if string(raw) == "null" {
		return fmt.Errorf("%s is null", strings.TrimPrefix(place, "."))
	}
	switch kind.Kind() {
	case reflect.Struct:
		return checkFields(raw, kind, place)
	case reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return err
		}
		for index, item := range items {
			if err := checkNames(item, kind.Elem(), fmt.Sprintf("%s[%d]", place, index)); err != nil {
				return err
			}
		}
	case reflect.Map:
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(raw, &entries); err != nil {
			return err
		}
		for key, entry := range entries {
			if err := checkNames(entry, kind.Elem(), place+"."+key); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFields(raw json.RawMessage, kind reflect.Type, place string) error {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return err
	}
	fields := map[string]reflect.Type{}
	for index := range kind.NumField() {
		field := kind.Field(index)
		fields[field.Tag.Get("json")] = field.Type
	}
	for key, entry := range entries {
		fieldType, known := fields[key]
		if !known {
			return fmt.Errorf("unknown field %s", strings.TrimPrefix(place+"."+key, "."))
		}
		if err := checkNames(entry, fieldType, place+"."+key); err != nil {
			return err
		}
	}
	return nil
}

// Absolute returns an error if a path is not absolute and clean.
func Absolute(paths []string) error {
	for _, name := range paths {
		if !path.IsAbs(name) || path.Clean(name) != name {
			return fmt.Errorf("specification: %q is not a clean absolute path", name)
		}
	}
	return nil
}

// IsCleanRelative reports whether a path is relative and clean, and names something below its root.
func IsCleanRelative(name string) bool {
	return name != "" && name != "." && name != ".." && !path.IsAbs(name) &&
		!strings.HasPrefix(name, "../") && path.Clean(name) == name && !strings.Contains(name, "\x00")
}

// Duration converts a positive number of seconds; what is too long for the type never passes.
func Duration(limit float64) time.Duration {
	const longest = 1 << 33 // seconds, about 270 years
	return time.Duration(min(limit, longest) * float64(time.Second))
}
