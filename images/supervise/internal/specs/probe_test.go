package specs

import (
	"encoding/json"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/fixtures"
	"securebench.dev/supervise/internal/outcome"
)

func TestDecodeProbe(t *testing.T) {
	second := `{"name":"dns","host":"10.96.0.10","port":53,"protocol":"udp"}`
	many := strings.Repeat(second+",", 32) + second
	for name, change := range map[string][2]string{
		"version":              {`"version":1`, `"version":2`},
		"want":                 {`"closed"`, `"maybe"`},
		"no targets":           {fixtures.CanarySpec[strings.Index(fixtures.CanarySpec, `"targets"`):], `"targets":[]}`},
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
		text := strings.Replace(fixtures.CanarySpec, change[0], change[1], 1)
		if text == fixtures.CanarySpec {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := Read[Probe](text); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	both := strings.Replace(fixtures.CanaryWithGateway(), `"gateway"`, `"api"`, 1)
	control := strings.Replace(fixtures.CanaryWithGateway(), `"closed"`, `"open"`, 1)
	for _, text := range []string{both, control} {
		if _, err := Read[Probe](text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if spec, err := Read[Probe](fixtures.CanaryWithGateway()); err != nil || len(spec.All()) != 3 {
		t.Errorf("%+v %v", spec, err)
	}
}

func FuzzDecodeProbe(f *testing.F) {
	for _, seed := range []string{fixtures.CanarySpec, fixtures.CanaryWithGateway(), fixtures.ControlSpec(), "{}", "null", `{"version":1,"targets":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Read[Probe](text)
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
		again, err := Read[Probe](withoutNulls(written))
		if err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if rewritten, _ := json.Marshal(again); string(rewritten) != string(written) {
			t.Errorf("%s became %s", written, rewritten)
		}
	})
}
