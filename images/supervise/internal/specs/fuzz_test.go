package specs

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

const fullSpec = `{"version":1,"verdict":true,"lanes":[{"path":"/lane","digest":"sha256:0"}],"candidate":` +
	`{"path":"/c/workspace.tar","digest":"sha256:0","to":"/workspace"},"copies":[{"source":"/a","to":"/b"}],` +
	`"protected":["/p"],"home":"/home","temporary":"","phases":[{"name":"check","command":["sh","-c","x"],"workdir":"/w",` +
	`"timeout_seconds":1.5,"env":{"A":"b"}}],"streams":{"folder":"/o","head_bytes":1,"tail_bytes":2},` +
	`"open_modes":["/o"],"probes":["a:1"],"probe_timeout_seconds":1,"max_processes":9}`

// FuzzDecodeRun: what is accepted is valid, says the same when it is written and read again, and
// a decoder that is not strict finds nothing else in it.
func FuzzDecodeRun(f *testing.F) {
	for _, seed := range []string{
		fullSpec, "{}", "null", "[]", `{"version":1,"version":1}`, `{"Version":1}`, "{\"version\":1}\x00",
		`{"version":1,"phases":[{"name":"x","command":["y"],"timeout_seconds":null}],"streams":{}}`,
		strings.Replace(fullSpec, `"/w"`, `"\ud800"`, 1), strings.Repeat("[", 20000),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Read[Run](text)
		if err != nil {
			return
		}
		if !utf8.ValidString(text) {
			t.Error("text that is not UTF-8 is accepted")
		}
		paths := append(append([]string{}, spec.Protected...), spec.OpenModes...)
		for _, each := range spec.Copies {
			paths = append(paths, each.Source, each.To)
		}
		for _, name := range paths {
			if !path.IsAbs(name) || path.Clean(name) != name {
				t.Errorf("path %q is accepted", name)
			}
		}
		written, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read[Run](withoutNulls(written))
		if err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if rewritten, _ := json.Marshal(again); !bytes.Equal(written, rewritten) {
			t.Errorf("%s became %s", written, rewritten)
		}
	})
}

// withoutNulls drops the absent lists: Go writes null for them, which the decoder refuses.
func withoutNulls(text []byte) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err.Error()
	}
	dropNulls(value)
	result, _ := json.Marshal(value)
	return string(result)
}

func dropNulls(value any) {
	switch known := value.(type) {
	case map[string]any:
		for key, item := range known {
			if item == nil {
				delete(known, key)
			}
			dropNulls(item)
		}
	case []any:
		for _, item := range known {
			dropNulls(item)
		}
	}
}
