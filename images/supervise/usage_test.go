package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

const statV2 = "usage_usec 10\nuser_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 9\n"

func TestUsageIsReadFromTheKernelsFiles(t *testing.T) {
	cases := map[string]struct {
		peak, before, after string
		want                usage
	}{
		"cgroup v2":           {"1048576\n", statV2, strings.ReplaceAll(statV2, "100\n", "140\n"), usage{1048576, 40, 0}},
		"throttled":           {"1\n", statV2, "nr_periods 110\nnr_throttled 12\n", usage{1, 10, 5}},
		"cgroup v1":           {"77\n", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n", "nr_periods 3\nnr_throttled 2\nthrottled_time 9\n", usage{77, 3, 2}},
		"no CPU limit":        {"77\n", "usage_usec 10\n", "usage_usec 20\n", usage{77, 0, 0}},
		"no number":           {"max\n", "nr_periods many\n", "nr_periods more\n", usage{}},
		"nothing":             {"", "", "", usage{}},
		"counts that go back": {"5\n", statV2, "nr_periods 1\nnr_throttled 1\n", usage{5, 0, 0}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			peak, stat := filepath.Join(t.TempDir(), "peak"), filepath.Join(t.TempDir(), "stat")
			write(t, peak, "")
			write(t, stat, test.before)
			none := filepath.Join(t.TempDir(), "none")
			measured := measureUsage([]string{none, peak}, []string{none, stat})
			write(t, peak, test.peak)
			write(t, stat, test.after)
			if got := measured(); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestWithoutFilesNoUsageIsKnown(t *testing.T) {
	none := []string{filepath.Join(t.TempDir(), "none")}
	if got := measureUsage(none, none)(); got != (usage{}) {
		t.Errorf("got %+v", got)
	}
}

func TestUsageStandsInTheMessageWhereItIsKnown(t *testing.T) {
	known := message{V: 1, usage: usage{MemoryPeakBytes: 5, CPUPeriods: 3, CPUThrottled: 2}}
	var fields map[string]any
	if err := json.Unmarshal(known.encode(), &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"memory_peak_bytes": 5, "cpu_periods": 3, "cpu_throttled": 2} {
		if fields[name] != want {
			t.Errorf("%s is %v, want %v", name, fields[name], want)
		}
	}
	if text := string(message{V: 1}.encode()); strings.Contains(text, "memory_peak") || strings.Contains(text, "cpu_") {
		t.Errorf("unknown usage is said: %s", text)
	}
}
