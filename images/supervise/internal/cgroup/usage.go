package cgroup

import (
	"os"

	"securebench.dev/supervise/internal/outcome"
)

// MemoryPeaks are the files in which the kernel keeps the most memory that our own cgroup had at
// once, its file cache included: cgroup v2, cgroup v1.
var MemoryPeaks = []string{
	"/sys/fs/cgroup/memory.peak",
	"/sys/fs/cgroup/memory/memory.max_usage_in_bytes",
}

// CpuStats are the files that count the periods of our own CPU limit: cgroup v2, cgroup v1.
var CpuStats = []string{
	"/sys/fs/cgroup/cpu.stat",
	"/sys/fs/cgroup/cpu/cpu.stat",
}

// MeasureUsage begins to measure and returns what gives the usage. The files are opened before any
// command runs, for the reason of CountMemoryKills.
func MeasureUsage(peaks, stats []string) func() outcome.Usage {
	peak, stat := openFirst(peaks), openFirst(stats)
	periods, throttled := statistic(stat, "nr_periods"), statistic(stat, "nr_throttled")
	return func() outcome.Usage {
		defer closeAll(peak, stat)
		return outcome.Usage{
			MemoryPeakBytes: statistic(peak, ""),
			CPUPeriods:      max(0, statistic(stat, "nr_periods")-periods),
			CPUThrottled:    max(0, statistic(stat, "nr_throttled")-throttled),
		}
	}
}

// openFirst opens the first of the files that exists, or returns nil.
func openFirst(files []string) *os.File {
	for _, name := range files {
		if file, err := os.Open(name); err == nil {
			return file
		}
	}
	return nil
}

func closeAll(files ...*os.File) {
	for _, file := range files {
		if file != nil {
			file.Close()
		}
	}
}
