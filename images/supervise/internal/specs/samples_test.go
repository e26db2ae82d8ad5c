package specs

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// samples are written by tests/unit/protocol/test_supervise.py.
func samples(t *testing.T) []sample {
	t.Helper()
	content, err := os.ReadFile("testdata/samples.json")
	if err != nil {
		t.Fatal(err)
	}
	var result []sample
	if err := json.Unmarshal(content, &result); err != nil || len(result) == 0 {
		t.Fatal(len(result), err)
	}
	return result
}

type sample struct {
	Verb string         `json:"verb"`
	Spec map[string]any `json:"spec"`
}

// rewritten reads a specification and writes it again.
func rewritten(verb, text string) (any, error) {
	switch verb {
	case "copy":
		var spec Copy
		return &spec, Decode(text, &spec)
	case "run":
		return Read[Run](text)
	case "courier":
		return Read[Courier](text)
	case "egress-proxy":
		return Read[Egress](text)
	default:
		return Read[Probe](text)
	}
}

func TestSamplesOfTheOperator(t *testing.T) {
	for _, each := range samples(t) {
		spec, err := rewritten(each.Verb, encoded(t, each.Spec))
		if err != nil {
			t.Errorf("%s: %v in %v", each.Verb, err, each.Spec)
			continue
		}
		text, _ := json.Marshal(spec)
		var again map[string]any
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, each.Spec) {
			t.Errorf("%v became %s", each.Spec, text)
		}
	}
}

func TestSamplesWithAnUnknownFieldAreRefused(t *testing.T) {
	for _, each := range samples(t) {
		for _, part := range objects(each.Spec) {
			part["more"] = true
			if _, err := rewritten(each.Verb, encoded(t, each.Spec)); err == nil {
				t.Errorf("%s: accepted with more in %v", each.Verb, part)
			}
			delete(part, "more")
		}
	}
}

// objects returns an object and all objects below it.
func objects(value any) []map[string]any {
	var result []map[string]any
	switch known := value.(type) {
	case map[string]any:
		result = append(result, known)
		for _, item := range known {
			result = append(result, objects(item)...)
		}
	case []any:
		for _, item := range known {
			result = append(result, objects(item)...)
		}
	}
	return result
}
