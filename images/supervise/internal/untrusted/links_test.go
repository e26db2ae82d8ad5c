package untrusted

import (
	"encoding/json"
	"os"
	"testing"
)

// The table is read by tests/threats/capture/test_failed_capture.py too.
func TestWhichLinksMayCross(t *testing.T) {
	content, err := os.ReadFile("testdata/links.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Path, Target string
		Stays              bool
	}
	if err := json.Unmarshal(content, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err, len(cases))
	}
	for _, each := range cases {
		t.Run(each.Name, func(t *testing.T) {
			if got := StaysInside(each.Path, each.Target); got != each.Stays {
				t.Errorf("link %s to %.80q: got %v", each.Path, each.Target, got)
			}
		})
	}
}
