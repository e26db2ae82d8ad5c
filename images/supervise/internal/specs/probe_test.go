package specs

import (
	"encoding/json"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

const canarySpec = `{"version":1,"want":"closed","timeout_seconds":2,"quiet_seconds":2,"limit_seconds":10,` +
	`"targets":[{"name":"api","host":"10.96.0.1","port":443,"protocol":"tcp"},` +
	`{"name":"dns","host":"10.96.0.10","port":53,"protocol":"udp"}]}`

const withGateway = `,"must_open":[{"name":"gateway","host":"10.96.7.7","port":8443,"protocol":"tcp"}]}`

// canaryAnd returns the specification of a canary that must reach a gateway.
func canaryAnd() string { return strings.TrimSuffix(canarySpec, "}") + withGateway }

func controlSpec() string { return strings.Replace(canarySpec, `"closed"`, `"open"`, 1) }

func TestDecodeProbe(t *testing.T) {
	second := `{"name":"dns","host":"10.96.0.10","port":53,"protocol":"udp"}`
	many := strings.Repeat(second+",", 32) + second
	for name, change := range map[string][2]string{
		"version":              {`"version":1`, `"version":2`},
		"want":                 {`"closed"`, `"maybe"`},
		"no targets":           {canarySpec[strings.Index(canarySpec, `"targets"`):], `"targets":[]}`},
		"too many":             {second, many},
		"the same name":        {`"dns"`, `"api"`},
		"no name":              {`"dns"`, `""`},
		"a long name":          {`"dns"`, `"` + strings.Repeat("n", outcome.MessageBytes) + `"`},
		"no host":              {`"10.96.0.10"`, `""`},
		"no port":              {`"port":53`, `"port":0`},
		"another protocol":     {`"udp"`, `"icmp"`},
		"no time":              {`"timeout_seconds":2`, `"timeout_seconds":0`},
		"a silence too long":   {`"quiet_seconds":2`, `"quiet_seconds":10`},
		"an unknown field":     {`"version":1`, `"version":1,"rounds":4`},
		"the same field twice": {`"version":1`, `"version":1,"version":1`},
	} {
		text := strings.Replace(canarySpec, change[0], change[1], 1)
		if text == canarySpec {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := DecodeProbe(text); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	both := strings.Replace(canaryAnd(), `"gateway"`, `"api"`, 1)
	control := strings.Replace(canaryAnd(), `"closed"`, `"open"`, 1)
	for _, text := range []string{both, control} {
		if _, err := DecodeProbe(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if spec, err := DecodeProbe(canaryAnd()); err != nil || len(spec.All()) != 3 {
		t.Errorf("%+v %v", spec, err)
	}
}

func FuzzDecodeProbe(f *testing.F) {
	for _, seed := range []string{canarySpec, canaryAnd(), controlSpec(), "{}", "null", `{"version":1,"targets":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := DecodeProbe(text)
		if err != nil {
			return
		}
		states := map[string]string{}
		for _, target := range spec.All() {
			states[target.Name] = StateClosed
			if !isPort(target.Port) || target.Host == "" {
				t.Errorf("target %+v is accepted", target)
			}
		}
		if len(states) != len(spec.All()) || len(states) > maxTargets {
			t.Errorf("targets %+v are accepted", spec.All())
		}
		if Duration(spec.QuietSeconds) < 0 || Duration(spec.LimitSeconds) < Duration(spec.QuietSeconds) {
			t.Errorf("%+v is accepted", spec)
		}
		largest := outcome.ProbeMessage{V: 1, Targets: states, Kernel: strings.Repeat("\x01", 32), Seconds: 1e9 + 0.001}
		if message, err := json.Marshal(largest); err != nil || len(message) > outcome.MessageBytes {
			t.Errorf("%d bytes, %v", len(message), err)
		}
		written, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeProbe(withoutNulls(written))
		if err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if rewritten, _ := json.Marshal(again); string(rewritten) != string(written) {
			t.Errorf("%s became %s", written, rewritten)
		}
	})
}
