package main

import "os"

// memoryPeaks are the files in which the kernel keeps the most memory that our own cgroup had at
// once, its file cache included: cgroup v2, cgroup v1.
var memoryPeaks = []string{
	"/sys/fs/cgroup/memory.peak",
	"/sys/fs/cgroup/memory/memory.max_usage_in_bytes",
}

// cpuStats are the files that count the periods of our own CPU limit: cgroup v2, cgroup v1.
var cpuStats = []string{
	"/sys/fs/cgroup/cpu.stat",
	"/sys/fs/cgroup/cpu/cpu.stat",
}

// usage is what the container took; a field is zero where no file says it (gVisor, an old kernel).
type usage struct {
	// MemoryPeakBytes is since the container's start.
	MemoryPeakBytes int `json:"memory_peak_bytes,omitempty"`
	// CPUPeriods are the periods of the CPU limit in which the phases ran; none without a limit.
	CPUPeriods int `json:"cpu_periods,omitempty"`
	// CPUThrottled are those of them in which the limit held the container up.
	CPUThrottled int `json:"cpu_throttled,omitempty"`
}

// measureUsage begins to measure and returns what gives the usage. The files are opened before any
// command runs, for the reason of countMemoryKills.
func measureUsage(peaks, stats []string) func() usage {
	peak, stat := openFirst(peaks), openFirst(stats)
	periods, throttled := statistic(stat, "nr_periods"), statistic(stat, "nr_throttled")
	return func() usage {
		defer closeAll(peak, stat)
		return usage{
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
