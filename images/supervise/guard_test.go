package main

import (
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

// reader prints whether a child of the check can open its parent's memory.
const reader = `import os
try:
    open("/proc/%d/mem" % os.getppid(), "r+b").close()
    print("open")
except OSError as error:
    print(type(error).__name__)
`

func TestTheMemoryOfACheckIsClosedToWhatItStarts(t *testing.T) {
	direct := `import subprocess, sys
print("own", open("/proc/self/maps").readline() != "", flush=True)
subprocess.run([sys.executable, "-I", "CHILD"], check=True)`
	cases := map[string][]string{
		"a program":           {"python3", "-I", "-c", direct},
		"behind env":          {"env", "python3", "-I", "-c", direct},
		"behind a shell":      {"sh", "-c", `exec python3 -I -c "$0"`, direct},
		"a shell that stays":  {"sh", "-c", "echo own True; python3 -I CHILD; true"},
		"a thread that began": {"python3", "-I", "-c", "import threading\nt = threading.Thread(target=lambda: exec(" + quoted(direct) + "))\nt.start()\nt.join()"},
	}
	for name, command := range cases {
		for _, guarded := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				f := newFixture(t)
				f.shed()
				f.write("child.py", reader)
				words := []string{}
				for _, word := range command {
					words = append(words, strings.ReplaceAll(word, "CHILD", f.path("child.py")))
				}
				one := phase("checker", 20, words...)
				one["guarded"] = guarded
				f.spec["verdict"] = true
				got := f.phases(one).run()
				want := "own True\nPermissionError\n"
				if !guarded {
					want = "own True\nopen\n"
				}
				if got.code != 0 || f.read("output/stdout") != want {
					t.Errorf("got %d, %q, %q", got.code, f.read("output/stdout"), f.read("output/stderr"))
				}
			})
		}
	}
}

func quoted(text string) string {
	return `"""` + text + `"""`
}

func TestAGuardedCommandEndsAsItWould(t *testing.T) {
	cases := map[string]struct {
		script string
		exit   int
		signal int
	}{
		"a code":           {"exit 7", 7, 0},
		"a signal":         {"kill -15 $$", 143, 15},
		"a trap":           {"trap 'exit 3' USR1; kill -USR1 $$; exit 4", 3, 0},
		"a stop":           {"(sleep 0.2; kill -CONT $$) & kill -STOP $$; exit 6", 6, 0},
		"a trap of others": {"sh -c 'kill -5 '$$; exit 4", 133, 5},
		"children":         {"for n in 1 2 3 4 5 6 7 8; do (exit 1) & done; wait; exit 5", 5, 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			one := shell(test.script)
			one["guarded"] = true
			f := newFixture(t)
			f.spec["verdict"] = true
			got := f.phases(one).run()
			if got.message.ExitCode != test.exit || got.message.Signal != test.signal || f.read("output/stderr") != "" {
				t.Errorf("got %+v, %q", got.message, f.read("output/stderr"))
			}
		})
	}
}

func TestAGuardedCommandIsEndedAtItsLimit(t *testing.T) {
	one := phase("checker", 0.5, "sleep", "60")
	one["guarded"] = true
	f := newFixture(t)
	f.spec["verdict"] = true
	if got := f.phases(one).run(); got.code != outcome.CodeTimeout {
		t.Errorf("got %+v", got.message)
	}
}
