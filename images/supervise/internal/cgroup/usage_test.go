package cgroup

import (
	"path/filepath"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

const statV2 = "usage_usec 10\nuser_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 9\n"

func used(peak, periods, throttled int) outcome.Usage {
	return outcome.Usage{MemoryPeakBytes: peak, CPUPeriods: periods, CPUThrottled: throttled}
}

func TestUsageIsReadFromTheKernelsFiles(t *testing.T) {
	cases := map[string]struct {
		peak, before, after string
		want                outcome.Usage
	}{
		"cgroup v2":           {"1048576\n", statV2, strings.ReplaceAll(statV2, "100\n", "140\n"), used(1048576, 40, 0)},
		"throttled":           {"1\n", statV2, "nr_periods 110\nnr_throttled 12\n", used(1, 10, 5)},
		"cgroup v1":           {"77\n", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n", "nr_periods 3\nnr_throttled 2\nthrottled_time 9\n", used(77, 3, 2)},
		"no CPU limit":        {"77\n", "usage_usec 10\n", "usage_usec 20\n", used(77, 0, 0)},
		"no number":           {"max\n", "nr_periods many\n", "nr_periods more\n", outcome.Usage{}},
		"nothing":             {"", "", "", outcome.Usage{}},
		"counts that go back": {"5\n", statV2, "nr_periods 1\nnr_throttled 1\n", used(5, 0, 0)},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			peak, stat := filepath.Join(t.TempDir(), "peak"), filepath.Join(t.TempDir(), "stat")
			write(t, peak, "")
			write(t, stat, test.before)
			none := filepath.Join(t.TempDir(), "none")
			measured := MeasureUsage([]string{none, peak}, []string{none, stat})
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
	if got := MeasureUsage(none, none)(); got != (outcome.Usage{}) {
		t.Errorf("got %+v", got)
	}
}
