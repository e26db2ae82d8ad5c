// Command argocd says what Argo CD shows as the health of objects. It runs the checks in Lua of an argocd-cm in Argo CD's
// own engine.
//
// usage: argocd ARGOCD-CM.json < OBJECTS.jsonl, one JSON line of health for each object
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// healthPrefix begins the keys of health checks; the group and kind behind it have an underscore between them, which Argo
// CD's settings read as a slash.
const healthPrefix = "resource.customizations.health."

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: argocd ARGOCD-CM.json < OBJECTS.jsonl")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "argocd:", err)
		os.Exit(1)
	}
}

func run(settings string, objects io.Reader, out io.Writer) error {
	checks, err := healthChecks(settings)
	if err != nil {
		return err
	}
	decoder, encoder := json.NewDecoder(objects), json.NewEncoder(out)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		health, err := checks.GetResourceHealth(&object)
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if health == nil {
			return fmt.Errorf("%s %s: Argo CD has no check for it", object.GetKind(), object.GetName())
		}
		if err := encoder.Encode(health); err != nil {
			return err
		}
	}
}

// healthChecks reads the checks of an argocd-cm by kind.
func healthChecks(path string) (lua.ResourceHealthOverrides, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var settings struct{ Data map[string]string }
	if err := json.Unmarshal(content, &settings); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	checks := lua.ResourceHealthOverrides{}
	for key, script := range settings.Data {
		if kind, found := strings.CutPrefix(key, healthPrefix); found {
			checks[strings.ReplaceAll(kind, "_", "/")] = v1alpha1.ResourceOverride{HealthLua: script}
		}
	}
	return checks, nil
}
