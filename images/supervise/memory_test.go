package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryKillsAreReadFromBothVersionsOfCgroups(t *testing.T) {
	cases := map[string]struct {
		content string
		want    int
	}{
		"cgroup v1":          {"oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2},
		"cgroup v2":          {"low 0\nhigh 0\nmax 7\noom 3\noom_kill 1\noom_group_kill 0\n", 1},
		"a kernel before it": {"oom_kill_disable 0\nunder_oom 0\n", 0},
		"no number":          {"oom_kill many\n", 0},
		"nothing":            {"", 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "events")
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := memoryKills([]string{filepath.Join(t.TempDir(), "none"), file}); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestKillsForMemoryOfAnEarlierStartDoNotCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte("oom_kill 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known := memoryEvents
	memoryEvents = []string{file}
	defer func() { memoryEvents = known }()
	count := countMemoryKills()
	if err := os.WriteFile(file, []byte("oom_kill 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 1 {
		t.Errorf("got %d", got)
	}
}

func TestMessageSaysThatACommandWasNeverStarted(t *testing.T) {
	cases := map[string]struct {
		phase map[string]any
		want  bool
	}{
		"no such program":           {phase("x", nil, "no-such-program"), true},
		"a folder":                  {phase("x", nil, "/proc"), true},
		"a shell that ends so":      {shell("exit 127"), false},
		"a program that runs":       {shell("true"), false},
		"a shell without a program": {shell("no-such-program"), false},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newFixture(t).phases(test.phase).run(); got.message.Unstarted != test.want {
				t.Errorf("got %+v", got.message)
			}
		})
	}
}
