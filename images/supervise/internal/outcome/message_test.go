package outcome

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzMessage: whatever an error says, the message is JSON that the kubelet keeps whole.
func FuzzMessage(f *testing.F) {
	f.Add("plain", 7, 1.5)
	f.Add(strings.Repeat("\x00\xff\u2028<é", 2000), -1, 0.0)
	f.Fuzz(func(t *testing.T, text string, code int, duration float64) {
		got := Failure(code, errors.New(text))
		got.DurationSeconds = duration
		encoded := got.Encode()
		if len(encoded) > MessageBytes || !json.Valid(encoded) {
			t.Errorf("%d bytes, valid %v", len(encoded), json.Valid(encoded))
		}
	})
}

func TestMessageStaysBelowItsBound(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 100_000), strings.Repeat("\x01", 50_000), strings.Repeat("ü", 9_999), "\xff\xfe"} {
		encoded := Message{V: 1, Code: 92, Error: text}.Encode()
		var back Message
		if err := json.Unmarshal(encoded, &back); err != nil || len(encoded) > MessageBytes || back.Code != 92 || back.Error == "" {
			t.Errorf("%d bytes: %v, %+v", len(encoded), err, back)
		}
	}
}

func TestUsageStandsInTheMessageWhereItIsKnown(t *testing.T) {
	known := Message{V: 1, Usage: Usage{MemoryPeakBytes: 5, CPUPeriods: 3, CPUThrottled: 2}}
	var fields map[string]any
	if err := json.Unmarshal(known.Encode(), &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"memory_peak_bytes": 5, "cpu_periods": 3, "cpu_throttled": 2} {
		if fields[name] != want {
			t.Errorf("%s is %v, want %v", name, fields[name], want)
		}
	}
	if text := string(Message{V: 1}.Encode()); strings.Contains(text, "memory_peak") || strings.Contains(text, "cpu_") {
		t.Errorf("unknown usage is said: %s", text)
	}
}

func TestUsageIsAddedToAMessageThatHasRoom(t *testing.T) {
	usage := Usage{MemoryPeakBytes: 5, CPUThrottled: 2}
	long := `{"v":1,"message":"` + strings.Repeat("x", usageRoom-50) + `"}`
	cases := map[string]struct {
		message string
		usage   Usage
		want    string
	}{
		"room":          {`{"v":1}`, usage, `{"v":1,"memory_peak_bytes":5,"cpu_throttled":2}`},
		"nothing known": {`{"v":1}`, Usage{}, `{"v":1}`},
		"no room":       {long, usage, long},
		"no object":     {"No space left on device", usage, "No space left on device"},
		"nothing":       {"", usage, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := string(WithUsage([]byte(test.message), test.usage)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
