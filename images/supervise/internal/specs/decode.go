// Package specs decodes the specifications of supervise, strictly: a type for each verb, generated from its class in
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
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const version = 1

// Read decodes and validates the specification of a verb.
func Read[T any, P interface {
	*T
	validate() error
}](text string) (T, error) {
	var spec T
	if err := Decode(text, &spec); err != nil {
		return spec, err
	}
	if err := P(&spec).validate(); err != nil {
		return spec, fmt.Errorf("specification: %w", err)
	}
	return spec, nil
}

// Decode reads one JSON object of this version strictly: exact field names, all of them but those that may
// be missing, no duplicates, no nulls where a value belongs, no negative numbers, no text that its
// field does not take or that is not Unicode, nothing after the object.
func Decode(text string, target any) error {
	spec := reflect.ValueOf(target).Elem()
	if err := decode([]byte(text), spec, target); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	if given := spec.FieldByName("Version").Int(); given != version {
		return fmt.Errorf("specification: version %d is not known", given)
	}
	return nil
}

func decode(raw []byte, spec reflect.Value, target any) error {
	if err := checkUnicode(raw); err != nil {
		return err
	}
	if err := checkValueOf(raw, spec.Type(), "", ""); err != nil {
		return err
	}
	return json.Unmarshal(raw, target)
}

// Strict reads a JSON object that somebody else may have written: what decoders could see differently is
// an error.
func Strict(raw []byte, target any) error {
	if err := checkUnicode(raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, target)
}

// checkUnicode requires one value of UTF-8, in which no text has half a character and no key stands twice.
func checkUnicode(raw []byte) error {
	if !utf8.Valid(raw) || hasLoneSurrogate(string(raw)) {
		return errors.New("not Unicode text in UTF-8")
	}
	return checkDuplicates(json.NewDecoder(bytes.NewReader(raw)))
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

// checkValueOf compares a value with its type: keys exactly, because encoding/json ignores their case.
func checkValueOf(raw json.RawMessage, kind reflect.Type, texts, place string) error {
	isNull := string(raw) == "null"
	if kind.Kind() == reflect.Pointer {
		if isNull {
			return nil
		}
		kind = kind.Elem()
	}
	if isNull {
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
			if err := checkValueOf(item, kind.Elem(), texts, fmt.Sprintf("%s[%d]", place, index)); err != nil {
				return err
			}
		}
	case reflect.Map:
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(raw, &entries); err != nil {
			return err
		}
		for key, entry := range entries {
			if err := checkValueOf(entry, kind.Elem(), texts, place+"."+key); err != nil {
				return err
			}
		}
	case reflect.String:
		return checkText(raw, texts, place)
	default:
		if raw[0] == '-' {
			return fmt.Errorf("%s is %s: below 0", strings.TrimPrefix(place, "."), raw)
		}
	}
	return nil
}

func checkFields(raw json.RawMessage, kind reflect.Type, place string) error {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return err
	}
	fields := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(kind) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields[name] = field
	}
	for key, entry := range entries {
		field, known := fields[key]
		if !known {
			return fmt.Errorf("unknown field %s", strings.TrimPrefix(place+"."+key, "."))
		}
		if err := checkValueOf(entry, field.Type, field.Tag.Get("is"), place+"."+key); err != nil {
			return err
		}
	}
	for name, field := range fields {
		if _, given := entries[name]; !given && !strings.HasSuffix(field.Tag.Get("json"), ",omitempty") {
			return fmt.Errorf("%s is missing", strings.TrimPrefix(place+"."+name, "."))
		}
	}
	return nil
}

// checkText compares a text with what its field takes: a path, or one of several words.
func checkText(raw json.RawMessage, texts, place string) error {
	var value string
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	fits := true
	switch texts {
	case "":
	case "absolute or empty":
		fits = value == "" || isCleanAbsolute(value)
	case "absolute":
		fits = isCleanAbsolute(value)
	case "relative":
		fits = IsCleanRelative(value)
	default:
		fits = slices.Contains(strings.Split(texts, "|"), value)
	}
	if !fits {
		return fmt.Errorf("%s is %q, not %s", strings.TrimPrefix(place, "."), value, texts)
	}
	return nil
}

func isCleanAbsolute(name string) bool { return path.IsAbs(name) && path.Clean(name) == name }

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

// hasLoneSurrogate reports whether JSON text has an escape of half a character: decoders differ in what
// they make of it.
func hasLoneSurrogate(text string) bool {
	for at := strings.IndexByte(text, '\\'); at >= 0 && at+1 < len(text); {
		step := 2
		switch code := surrogateAt(text, at); {
		case code >= 0xdc00:
			return true
		case code >= 0xd800:
			if surrogateAt(text, at+6) < 0xdc00 {
				return true
			}
			step = 12
		}
		next := strings.IndexByte(text[at+step:], '\\')
		if next < 0 {
			return false
		}
		at += step + next
	}
	return false
}

// surrogateAt returns the half of a character whose escape begins at a place, or 0.
func surrogateAt(text string, at int) uint64 {
	if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
		return 0
	}
	code, err := strconv.ParseUint(text[at+2:at+6], 16, 16)
	if err != nil || code < 0xd800 || code > 0xdfff {
		return 0
	}
	return code
}
