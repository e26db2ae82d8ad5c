package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"securebench.dev/supervise/internal/outcome"
)

const incomplete = "tests did not complete"

func proving(script string) map[string]any {
	one := phase("tests", 5.0, "sh", "-c", script)
	one["proof"] = incomplete
	return one
}

func TestProofOfCompletion(t *testing.T) {
	cases := map[string]struct {
		script string
		want   int
		proven bool
	}{
		"completed and passed":      {"cat <&3 >&4", 0, true},
		"completed and failed":      {"cat <&3 >&4; exit 1", 1, true},
		"ended early with 0":        {"exit 0", 1, false},
		"ended early with 1":        {"exit 1", 1, false},
		"killed":                    {"kill -9 $$", 1, false},
		"guessed":                   {"head -c 32 /dev/zero >&4", 1, false},
		"a part":                    {"head -c 31 <&3 >&4", 1, false},
		"a word behind it":          {"cat <&3 >&4; printf values >&4", 0, true},
		"no word behind it":         {"cat <&3 >&4; printf ' X' >&4", 1, false},
		"a long word behind it":     {"cat <&3 >&4; printf abcdefghijklmnopq >&4", 1, false},
		"twice":                     {"cat <&3 > s; cat s s >&4", 1, false},
		"much":                      {"head -c 200000 /dev/zero >&4 & sleep 0.2", 1, false},
		"the time limit":            {"cat <&3 >&4; sleep 60", 124, true},
		"answered by another child": {"(cat <&3 >&4)", 0, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			one := proving(test.script)
			one["workdir"] = f.path("workspace")
			f.spec["verdict"] = true
			got := f.phases(one).run()
			if got.code != test.want {
				t.Errorf("code %d, %+v", got.code, got.message)
			}
			said := f.read("output/stderr") == "securebench: "+incomplete+"\n"
			if said == test.proven || (got.message.Error == "") != test.proven {
				t.Errorf("stderr %q, %+v", f.read("output/stderr"), got.message)
			}
		})
	}
}

func TestWhatTheVerdictRestsOn(t *testing.T) {
	for script, want := range map[string]string{
		"cat <&3 >&4; printf values >&4":          "values",
		"cat <&3 >&4; printf objects >&4; exit 1": "objects",
		"cat <&3 >&4":       "",
		"printf values >&4": "",
	} {
		f := newFixture(t)
		one := proving(script)
		one["workdir"] = f.path("workspace")
		f.spec["verdict"] = true
		if got := f.phases(one).run().message.Grading; got != want {
			t.Errorf("%s: %q", script, got)
		}
	}
}

func TestSecretIsANewOneEachTime(t *testing.T) {
	f := newFixture(t)
	one := proving("cat <&3 >> ../secrets; exit 0")
	one["workdir"] = f.path("workspace")
	f.phases(one).run()
	f.phases(one).run()
	secrets := f.read("secrets")
	if len(secrets) != 2*32 || secrets[:32] == secrets[32:] {
		t.Errorf("secrets %q", secrets)
	}
}

const other = 64124

// becoming is a fixture whose command runs as another user than supervise.
func becoming(t *testing.T, script string) *fixture {
	if os.Getuid() != 0 {
		t.Skip("not applicable: only root can become somebody else")
	}
	f := newFixture(t)
	f.init = true
	for _, name := range []string{"..", "", "workspace", "output"} {
		if err := os.Chmod(f.path(name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	one := shell(script)
	one["workdir"], one["user"] = f.path("workspace"), other
	return f.phases(one)
}

func TestCommandRunsAsAnotherUser(t *testing.T) {
	f := becoming(t, "id -u; id -g; id -G; grep '^Cap[^B]' /proc/self/status | sort")
	f.run()
	want := fmt.Sprintf("%d\n%d\n%d\n", other, other, other)
	for _, set := range []string{"CapAmb", "CapEff", "CapInh", "CapPrm"} {
		want += set + ":\t0000000000000000\n"
	}
	if got := f.read("output/stdout"); got != want {
		t.Errorf("got %q", got)
	}
}

func TestAnotherUserReachesNothingOfSupervise(t *testing.T) {
	f := becoming(t, `
for s in TERM INT KILL HUP; do kill -$s 1 && echo "sent $s"; done
cat /proc/1/environ && echo environment
ls /proc/1/fd && echo descriptors
for n in stdout report.json other; do touch ../output/$n && echo $n; done
(echo x > ../output/stdout) && echo written
rm -rf ../output/stdout; mv ../output ../moved
exit 3`)
	// Its own folder: in a Pod it is a mount point, whose parent nobody may write.
	if err := os.Chmod(f.root, 0o755); err != nil {
		t.Fatal(err)
	}
	got := f.run()
	if got.code != outcome.CodeDone || got.message.ExitCode != 3 || f.read("output/stdout") != "" {
		t.Errorf("stdout %q, %+v", f.read("output/stdout"), got.message)
	}
}

func TestProcessesOfAnotherUserAreEnded(t *testing.T) {
	f := becoming(t, daemons+"exit 0")
	if got := f.run(); got.code != outcome.CodeDone || got.took > 15*time.Second {
		t.Fatalf("code %d after %v", got.code, got.took)
	}
	before := f.read("workspace/alive")
	time.Sleep(60 * time.Millisecond)
	if f.read("workspace/alive") != before {
		t.Error("a process still writes")
	}
}

func TestWithoutCapabilitiesNobodyElseIsBecome(t *testing.T) {
	f := becoming(t, ": > ran")
	f.init = false
	f.shed()
	got := f.run()
	if got.code != outcome.CodeOwnFault || !strings.Contains(got.message.Error, "CAP_SETUID") {
		t.Errorf("code %d, %+v", got.code, got.message)
	}
	if _, err := os.Stat(f.path("workspace/ran")); err == nil {
		t.Error("the command ran")
	}
}
