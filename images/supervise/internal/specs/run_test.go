package specs

import (
	"strings"
	"testing"
)

const (
	smallRun = `{"version":1,` + surroundings + `,"phases":[{"name":"a","command":["true"],"workdir":"","timeout_seconds":null,"env":{"A":"b"}}]}`

	streams      = `"streams":{"folder":"","head_bytes":0,"tail_bytes":0}`
	surroundings = streams + `,"temporary":"","probes":[],"probe_timeout_seconds":0,"max_processes":0`
)

func TestDecodeRun(t *testing.T) {
	spec, err := Read[Run](smallRun)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Phases[0].Env["A"] != "b" || spec.Phases[0].TimeoutSeconds != nil || spec.Candidate != nil {
		t.Errorf("got %+v", spec)
	}
}

func TestDecodeRefuses(t *testing.T) {
	phase := func(fields string) string {
		return `{"version":1,` + surroundings + `,"phases":[{"workdir":"",` + fields + `}]}`
	}
	cases := map[string]struct{ text, want string }{
		"nothing":                {``, "EOF"},
		"half":                   {smallRun[:20], "EOF"},
		"an array":               {`[]`, "array"},
		"null":                   {`null`, "null"},
		"trailing bytes":         {smallRun + `{}`, "after"},
		"trailing brace":         {smallRun + `}`, "after"},
		"unknown field":          {`{"version":1,"extra":1}`, "unknown field extra"},
		"unknown nested field":   {phase(`"name":"a","command":["b"],"x":1`), "unknown field phases[0].x"},
		"a missing field":        {strings.Replace(smallRun, `"max_processes":0,`, "", 1), "max_processes is missing"},
		"another case":           {`{"Version":1}`, "unknown field Version"},
		"duplicate":              {`{"version":1,"version":1}`, "duplicate"},
		"duplicate in a phase":   {phase(`"name":"a","name":"b","command":["b"]`), "duplicate"},
		"duplicate variable":     {phase(`"name":"a","command":["b"],"env":{"A":"1","A":"2"}`), "duplicate"},
		"escaped duplicate":      {`{"version":1,"v\u0065rsion":1}`, "duplicate"},
		"null for a list":        {`{"version":1,"lanes":null}`, "lanes is null"},
		"null for a string":      {phase(`"name":null,"command":["b"]`), "null"},
		"not UTF-8":              {"{\"version\":1,\"home\":\"\xff\"}", "UTF-8"},
		"byte order mark":        {"\ufeff" + smallRun, "invalid"},
		"another version":        {strings.Replace(smallRun, `"version":1`, `"version":2`, 1), "version 2"},
		"a fraction as version":  {strings.Replace(smallRun, `"version":1`, `"version":1.5`, 1), "1.5"},
		"no version":             {`{` + smallRun[13:], "version is missing"},
		"no phase":               {`{"version":1,` + surroundings + `}`, "0 phases"},
		"too many phases":        {phase(strings.Repeat(`"name":"a","command":["b"]},{"workdir":"",`, 26) + `"name":"a","command":["b"]`), "27 phases"},
		"no command":             {phase(`"name":"a","command":[]`), "no command"},
		"an empty command":       {phase(`"name":"a","command":[""]`), "no command"},
		"a NUL byte":             {phase(`"name":"a","command":["b\u0000"]`), "NUL"},
		"no name":                {phase(`"command":["b"]`), "name"},
		"no time":                {phase(`"name":"a","command":["b"],"timeout_seconds":0`), "time limit"},
		"time without end":       {phase(`"name":"a","command":["b"],"timeout_seconds":1e400`), "1e400"},
		"an impossible variable": {phase(`"name":"a","command":["b"],"env":{"A=":"1"}`), "variable"},
		"a relative path":        {`{"version":1,"home":"home",` + smallRun[13:], "absolute"},
		"a path with a step up":  {`{"version":1,"protected":["/a/../b"],` + smallRun[13:], "absolute"},
		"a stream of gigabytes":  {strings.Replace(smallRun, `"head_bytes":0`, `"head_bytes":99999999999`, 1), "streams"},
		"a file without a time":  {`{"version":1,"needs":"/a",` + smallRun[13:], "needs_seconds"},
		"a time without a file":  {`{"version":1,"needs_seconds":1,` + smallRun[13:], "needs_seconds"},
		"a negative time":        {`{"version":1,"needs":"/a","needs_seconds":-1,` + smallRun[13:], "needs_seconds"},
		"a relative file":        {`{"version":1,"needs":"a","needs_seconds":1,` + smallRun[13:], "absolute"},
		"a negative limit":       {strings.Replace(smallRun, `"max_processes":0`, `"max_processes":-1`, 1), "-1"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Read[Run](test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
