package main

import (
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

// memoryKills returns how many processes of the container were killed for memory so far; where no
// file says so (gVisor), nothing is known and it is 0.
func memoryKills(files []string) int {
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(content), "\n") {
			key, value, _ := strings.Cut(line, " ")
			if count, err := strconv.Atoi(value); key == "oom_kill" && err == nil {
				return count
			}
		}
	}
	return 0
}

// countMemoryKills begins to count and returns what gives the number since then.
func countMemoryKills() func() int {
	before := memoryKills(memoryEvents)
	return func() int { return max(0, memoryKills(memoryEvents)-before) }
}
