package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryKillsAreReadFromBothVersionsOfCgroups(t *testing.T) {
	cases := map[string]struct {
		before, after string
		want          int
	}{
		"cgroup v1":          {"oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2},
		"cgroup v2":          {"max 0\noom 0\noom_kill 0\noom_group_kill 0\n", "max 7\noom 3\noom_kill 1\noom_group_kill 0\n", 1},
		"an earlier start":   {"oom_kill 4\n", "oom_kill 5\n", 1},
		"none":               {"oom_kill 4\n", "oom_kill 4\n", 0},
		"a kernel before it": {"under_oom 0\n", "under_oom 0\n", 0},
		"no number":          {"oom_kill 0\n", "oom_kill many\n", 0},
		"nothing":            {"", "", 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "events")
			write(t, file, test.before)
			count := CountMemoryKills([]string{filepath.Join(t.TempDir(), "none"), file})
			write(t, file, test.after)
			if got := count(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestWithoutAFileNoKillForMemoryIsKnown(t *testing.T) {
	if got := CountMemoryKills([]string{filepath.Join(t.TempDir(), "none")})(); got != 0 {
		t.Errorf("got %d", got)
	}
}

func TestACommandCannotPutAnotherFileInTheWay(t *testing.T) {
	folder := t.TempDir()
	forged, events := filepath.Join(folder, "memory.events"), filepath.Join(folder, "oom_control")
	write(t, events, "oom_kill 0\n")
	count := CountMemoryKills([]string{forged, events})
	write(t, forged, "oom_kill 9\n")
	if got := count(); got != 0 {
		t.Errorf("got %d", got)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
