// Package cgroup reads what the kernel counts of our own container.
package cgroup

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// MemoryEvents are the files in which the kernel counts the processes of our own cgroup that it
// killed for memory: cgroup v2, cgroup v1. A runtime mounts only the container's own cgroup.
var MemoryEvents = []string{
	"/sys/fs/cgroup/memory.events",
	"/sys/fs/cgroup/memory/memory.oom_control",
}

// statisticsBytes is more than any of these files has.
const statisticsBytes = 4096

// CountMemoryKills begins to count and returns what gives the number since then. The file is opened
// before any command runs: with cgroup v1 the folder above the kernel's files is one that root of the
// container can write to. Where no file says so (gVisor), nothing is known.
func CountMemoryKills(files []string) func() int {
	file := openFirst(files)
	before := statistic(file, "oom_kill")
	return func() int {
		defer closeAll(file)
		return max(0, statistic(file, "oom_kill")-before)
	}
}

// statistic returns the number behind a key in one of the kernel's files, of which each line has a
// key and a number, or that of a file that has one number only (key ""); 0 where there is none.
func statistic(file *os.File, key string) int {
	if file == nil {
		return 0
	}
	content, err := io.ReadAll(io.NewSectionReader(file, 0, statisticsBytes))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(content), "\n") {
		name, value, found := strings.Cut(line, " ")
		if !found {
			name, value = "", line
		}
		if count, err := strconv.Atoi(value); name == key && err == nil {
			return count
		}
	}
	return 0
}
