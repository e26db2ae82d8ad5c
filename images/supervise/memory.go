package main

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// memoryEvents are the files in which the kernel counts the processes of our own cgroup that it
// killed for memory: cgroup v2, cgroup v1. A runtime mounts only the container's own cgroup.
var memoryEvents = []string{
	"/sys/fs/cgroup/memory.events",
	"/sys/fs/cgroup/memory/memory.oom_control",
}

// memoryEventsBytes is more than either file has.
const memoryEventsBytes = 4096

// countMemoryKills begins to count and returns what gives the number since then. The file is opened
// before any command runs: with cgroup v1 the folder above the kernel's files is one that root of the
// container can write to.
func countMemoryKills(files []string) func() int {
	for _, name := range files {
		if file, err := os.Open(name); err == nil {
			before := memoryKills(file)
			return func() int {
				defer file.Close()
				return max(0, memoryKills(file)-before)
			}
		}
	}
	// Where no file says so (gVisor), nothing is known.
	return func() int { return 0 }
}

// memoryKills returns how many processes of the container were killed for memory so far.
func memoryKills(events *os.File) int {
	content, err := io.ReadAll(io.NewSectionReader(events, 0, memoryEventsBytes))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(content), "\n") {
		key, value, _ := strings.Cut(line, " ")
		if count, err := strconv.Atoi(value); key == "oom_kill" && err == nil {
			return count
		}
	}
	return 0
}
