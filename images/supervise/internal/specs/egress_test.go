package specs

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
)

// FuzzDecodeEgress: what is accepted says the same when it is written and read again, and names an
// address, ports and routes that the sidecar may have.
func FuzzDecodeEgress(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"gateway":{"host":"10.96.7.7","port":8443},"token":"/t","listen":{"proxy":8080,"provider":8081},` +
			`"connections":128,"start_seconds":60,"close_seconds":20}`,
		`{"version":1,"gateway":{"host":"::1","port":1},"token":"/t","listen":{"close":1},"connections":1,"start_seconds":1e-9,"close_seconds":1e308}`,
		`{}`, `null`, `{"listen":{"proxy":1,"proxy":2}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Read[Egress](text)
		if err != nil {
			return
		}
		for route, port := range spec.Listen {
			if route == RouteClose || !isPort(port) {
				t.Errorf("route %q at port %d is accepted", route, port)
			}
		}
		if Duration(spec.StartSeconds) < 0 || Duration(spec.CloseSeconds) < 0 {
			t.Errorf("%v and %v seconds are accepted", spec.StartSeconds, spec.CloseSeconds)
		}
		written, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Read[Egress](string(written)); err != nil || !reflect.DeepEqual(again, spec) {
			t.Errorf("%s became %+v, %v", written, again, err)
		}
	})
}

func egressFields() map[string]any {
	return map[string]any{
		"version": 1, "gateway": map[string]any{"host": "10.96.7.7", "port": 8443},
		"token": "/work/token/token", "listen": map[string]any{"proxy": 8080},
		"connections": 128, "start_seconds": 60, "close_seconds": 20,
	}
}

func encoded(t *testing.T, fields map[string]any) string {
	t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEgressSpecification(t *testing.T) {
	want := Egress{
		Version: 1, Gateway: GatewayAddress{"10.96.7.7", 8443}, Token: "/work/token/token",
		Listen: map[string]int{RouteProxy: 8080}, Connections: 128, StartSeconds: 60, CloseSeconds: 20,
	}
	if got, err := Read[Egress](encoded(t, egressFields())); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]map[string]any{
		"version":       {"version": 2},
		"unknown field": {"more": 1},
		"no port":       {"gateway": map[string]any{"host": "10.96.7.7"}},
		"a name":        {"gateway": map[string]any{"host": "gateway", "port": 8443}},
		"no token":      {"token": ""},
		"relative":      {"token": "token"},
		"route":         {"listen": map[string]any{"tunnel": 1}},
		"closing":       {"listen": map[string]any{"close": 8080}},
		"large port":    {"listen": map[string]any{"proxy": 1 << 16}},
		"no route":      {"listen": map[string]any{}},
		"no map":        {"listen": 8080},
		"word":          {"connections": "many"},
		"none":          {"connections": 0},
		"no time":       {"start_seconds": 0},
		"negative":      {"close_seconds": -1},
	} {
		fields := egressFields()
		maps.Copy(fields, change)
		if _, err := Read[Egress](encoded(t, fields)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name := range egressFields() {
		fields := egressFields()
		delete(fields, name)
		if _, err := Read[Egress](encoded(t, fields)); err == nil {
			t.Errorf("accepted without %s", name)
		}
	}
}
