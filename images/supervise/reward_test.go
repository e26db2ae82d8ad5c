package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

// left is what supervise says of a reward.
type left struct {
	V                      int
	Name, Problem, Message string
	Content                []byte
}

func rewarded(f *fixture, script string) left {
	f.t.Helper()
	if err := os.MkdirAll(f.path("logs"), 0o777); err != nil {
		f.t.Fatal(err)
	}
	f.spec["reward"] = map[string]any{"folder": f.path("logs"), "files": []string{"reward.json", "reward.txt"}, "bytes": 16}
	one := phase("tests", 2.0, "sh", "-c", script)
	one["workdir"] = f.path("logs")
	got := f.phases(one).run()
	if got.code != outcome.CodeDone && got.code != outcome.CodeTimeout {
		f.t.Fatalf("code %d, %+v", got.code, got.message)
	}
	var found left
	if err := json.Unmarshal([]byte(f.read("output/reward")), &found); err != nil {
		f.t.Fatal(err)
	}
	return found
}

func TestTheFirstRewardFileIsKept(t *testing.T) {
	const missing, invalid, large = "candidate_missing", "candidate_invalid", "candidate_too_large"
	cases := map[string]struct {
		script  string
		want    left
		message string
	}{
		"none":             {"true", left{Name: "reward.txt", Problem: missing}, "does not exist"},
		"text":             {"printf 0.5 > reward.txt; exit 3", left{Name: "reward.txt", Content: []byte("0.5")}, ""},
		"both":             {"printf 0.5 > reward.txt; printf '{}' > reward.json", left{Name: "reward.json", Content: []byte("{}")}, ""},
		"no content":       {": > reward.json; printf 1 > reward.txt", left{Name: "reward.json"}, ""},
		"bytes":            {`printf '\377' > reward.txt`, left{Name: "reward.txt", Content: []byte{255}}, ""},
		"a link":           {"printf 1 > reward.txt; ln -s reward.txt reward.json", left{Name: "reward.json", Problem: invalid}, "a symbolic link"},
		"a dangling link":  {"printf 1 > reward.txt; ln -s /nowhere reward.json", left{Name: "reward.json", Problem: invalid}, "a symbolic link"},
		"a folder":         {"mkdir reward.txt", left{Name: "reward.txt", Problem: invalid}, "a folder"},
		"a FIFO":           {"mkfifo reward.txt", left{Name: "reward.txt", Problem: invalid}, "a FIFO"},
		"as large as that": {"printf 0.12345678901234 > reward.txt", left{Name: "reward.txt", Content: []byte("0.12345678901234")}, ""},
		"too large":        {"truncate -s 1G reward.txt", left{Name: "reward.txt", Problem: large}, "more than 16 bytes"},
		"the folder moved": {"mv ../logs ../other; mkdir ../logs; printf 1 > ../logs/reward.txt", left{Name: "reward.txt", Problem: missing}, ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := rewarded(newFixture(t), test.script)
			if got.V != 1 || got.Name != test.want.Name || got.Problem != test.want.Problem {
				t.Errorf("got %+v", got)
			}
			if string(got.Content) != string(test.want.Content) || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %q, %q", got.Content, got.Message)
			}
		})
	}
}

func TestNothingChangesARewardWhenTheScriptHasEnded(t *testing.T) {
	f := newFixture(t)
	f.init = true
	got := rewarded(f, "(setsid sh -c 'while :; do printf 1 > reward.txt; done' &) ; printf 0 > reward.txt; sleep 0.2; exit 0")
	if content := f.read("logs/reward.txt"); string(got.Content) != content {
		t.Errorf("kept %q, and %q is there", got.Content, content)
	}
}

func TestACopyThatCommandsMadeIsReplaced(t *testing.T) {
	for name, forged := range map[string]string{
		"a file":   `printf '{"v":1,"name":"reward.txt","content":"MQ=="}' > ../output/reward`,
		"a folder": "mkdir -p ../output/reward/a",
		"a link":   "ln -s ../logs/reward.txt ../output/reward",
	} {
		t.Run(name, func(t *testing.T) {
			if got := rewarded(newFixture(t), "printf 0 > reward.txt; "+forged); string(got.Content) != "0" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestARewardIsKeptAtTheTimeLimit(t *testing.T) {
	f := newFixture(t)
	if got := rewarded(f, "printf 1 > reward.txt; sleep 60"); string(got.Content) != "1" {
		t.Errorf("got %+v", got)
	}
}

func TestTheShellOfAScriptWithoutAFirstLine(t *testing.T) {
	for shell, want := range map[string]string{"": "sh", "bash": "bash", "no-such-shell": "sh"} {
		f := newFixture(t)
		f.write("check", "case \"$BASH_VERSION\" in '') echo sh ;; *) case $0 in */check) shopt -q -o posix && echo sh || echo bash ;; esac ;; esac\n")
		one := phase("tests", nil, f.path("check"))
		one["script"], one["interpreter"] = true, shell
		f.phases(one).run()
		if got := strings.TrimSpace(f.read("output/stdout")); got != want {
			t.Errorf("%q: %q, not %q", shell, got, want)
		}
	}
}
