package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/rootfs"
	"securebench.dev/supervise/internal/specs"
)

// enterContainer mounts what a container has in a mount namespace of its own: an image below a writable layer,
// the output, the tests and the candidate. Its program is root without capabilities but those that are named.
const enterContainer = `set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
mount --rbind /dev "$2/root/dev"
for each in output tests candidate tools; do mount --bind "$2/$each" "$2/root/mounted/$each"; done
mount --bind "$2/tests" "$2/root/tests"
mount -o remount,bind,ro "$2/root/tests"
mount --bind "$2/reward" "$2/root/logs/verifier"
exec chroot "$2/root" /mounted/tools/setpriv --bounding-set="-all$4" --inh-caps=-all /mounted/tools/supervise run --spec "$3"
`

var imagePrograms = []string{"bash", "sh", "env", "cat", "ls", "ln", "mkdir", "mv", "rm", "cp", "chmod", "touch", "sleep", "setpriv", "ldconfig"}

// taskImage is a root file system with a few programs of this machine and their libraries.
var taskImage = sync.OnceValues(func() (string, error) {
	root, err := os.MkdirTemp("", "image")
	if err != nil {
		return "", err
	}
	script := `set -e
cd "$1"; export PATH="$PATH:/usr/sbin:/sbin"
mkdir -p usr/bin usr/lib etc proc tests logs/verifier app tmp root mounted/output mounted/tests mounted/candidate mounted/tools dev
ln -s usr/bin bin; ln -s usr/lib lib
echo 'passwd: files' > etc/nsswitch.conf
echo kept > app/kept
shift
for each; do
  program=$(readlink -f "$(command -v "$each")")
  cp "$program" "usr/bin/$each"
  for library in $(ldd "$program" | grep -o '/[^ ]*'); do
    mkdir -p ".$(dirname "$library")"
    [ -e ".$library" ] || cp -L "$library" ".$library"
  done
done
ldconfig -r . 2>/dev/null
`
	output, err := exec.Command("bash", append([]string{"-c", script, "image", root}, imagePrograms...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return root, nil
})

// container is one side of a task: the agent's, or the verifier's.
type container struct {
	t      *testing.T
	folder string
	spec   map[string]any
	keeps  string // capabilities, as ",+setuid,+setgid"
}

func newContainer(t *testing.T) *container {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not applicable: only root makes containers")
	}
	c := &container{t: t, folder: t.TempDir()}
	for _, name := range []string{"upper", "work", "root", "output", "tests", "candidate", "tools", "reward"} {
		must(t, os.Mkdir(filepath.Join(c.folder, name), 0o755))
	}
	for _, each := range []string{"supervise", "setpriv"} {
		source := "/proc/self/exe"
		if each == "setpriv" {
			var err error
			source, err = exec.LookPath(each)
			must(t, err)
		}
		content, err := os.ReadFile(source)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(c.folder, "tools", each), content, 0o755))
	}
	c.spec = map[string]any{
		"version": 1, "temporary": "", "max_processes": 0, "probes": []any{}, "probe_timeout_seconds": 1,
		"streams":    map[string]any{"folder": "/mounted/output", "head_bytes": 1 << 16, "tail_bytes": 1 << 16},
		"open_modes": []any{"/mounted/output"},
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *container) run() result {
	c.t.Helper()
	image, err := taskImage()
	must(c.t, err)
	text, err := json.Marshal(c.spec)
	must(c.t, err)
	command := exec.Command("unshare", "--mount", "--pid", "--fork", "sh", "-c", enterContainer, "sh", image, c.folder, string(text), c.keeps)
	command.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", helperLog + "=/mounted/output/log"}
	must(c.t, os.WriteFile(filepath.Join(c.folder, "output", "log"), nil, 0o666))
	said, err := command.CombinedOutput()
	raw, readErr := os.ReadFile(filepath.Join(c.folder, "output", "log"))
	must(c.t, readErr)
	got := result{code: command.ProcessState.ExitCode(), raw: raw}
	if err := json.Unmarshal(raw, &got.message); err != nil {
		c.t.Fatalf("message %.200q: %v: %s", raw, err, said)
	}
	return got
}

func (c *container) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(c.folder, name))
	return string(content)
}

var ours = []string{"/mounted", "/tests", "/logs"}

// agentWorks runs a command as an agent and returns the sealed changes of its root file system.
func agentWorks(t *testing.T, script string) ([]byte, string, outcome.Losses) {
	t.Helper()
	agent := newContainer(t)
	agent.spec["phases"] = []any{phase("harness", 60, "bash", "-c", script)}
	agent.spec["root"] = map[string]any{"excluded": ours, "bytes": 100 << 20, "entries": 10_000}
	if got := agent.run(); got.code != 0 || got.message.ExitCode != 0 {
		t.Fatalf("agent: %+v: %s", got.message, agent.read("output/stderr"))
	}
	return sealedBy(t, agent)
}

// sealedBy seals what a container left.
func sealedBy(t *testing.T, agent *container) ([]byte, string, outcome.Losses) {
	t.Helper()
	var sealed bytes.Buffer
	archive := bundle.New(&sealed)
	bounds := specs.CandidateBounds{WorkspaceBytes: 100 << 20, WorkspaceFiles: 10_000}
	exclude := map[string]bool{"mounted": true, "tests": true, "logs": true}
	found, err := rootfs.Seal(strings.NewReader(agent.read("output/"+outcome.RootFile)), bounds, exclude, archive)
	must(t, err)
	return sealed.Bytes(), archive.Digest(), found.Losses
}

// graded runs a test script beside sealed changes and returns the reward that it left.
func graded(t *testing.T, sealed []byte, digest, script string, tools ...string) (string, result) {
	t.Helper()
	return gradedBy(t, "bash", sealed, digest, script, tools...)
}

func gradedBy(t *testing.T, shell string, sealed []byte, digest, script string, tools ...string) (string, result) {
	t.Helper()
	verifier := newContainer(t)
	must(t, os.WriteFile(filepath.Join(verifier.folder, "candidate", "root.tar"), sealed, 0o644))
	must(t, os.WriteFile(filepath.Join(verifier.folder, "tests", "test.sh"), []byte(script), 0o755))
	must(t, os.WriteFile(filepath.Join(verifier.folder, "tests", "expected"), []byte("secret\n"), 0o644))
	verifier.spec["phases"] = []any{phase("reward", 60, shell, "/tests/test.sh")}
	verifier.spec["changes"] = map[string]any{
		"path": "/mounted/candidate/root.tar", "digest": digest, "excluded": ours, "tools": tools,
	}
	got := verifier.run()
	return strings.TrimSpace(verifier.read("reward/reward.txt")), got
}

// checkAnswer gives 1 for the right answer, in shell alone.
const checkAnswer = `answer=missing
[ -f /app/answer ] && read -r answer < /app/answer
read -r expected < /tests/expected
if [ "$answer" = "$expected" ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
`

func TestWhatAnAgentChangesAnywhereIsGraded(t *testing.T) {
	sealed, digest, losses := agentWorks(t, `mkdir -p /opt/new /root/.config && echo x > /opt/new/x && mv /app/kept /root/.config/moved
ln -s /opt/new /app/new && chmod 600 /etc/nsswitch.conf; chmod 644 /etc/nsswitch.conf; mkdir -m 700 /app/empty; rm /usr/bin/sleep`)
	reward, got := graded(t, sealed, digest, `ok=0
[ "$(cat /app/new/x)" = x ] && [ "$(cat /root/.config/moved)" = kept ] && [ ! -e /app/kept ] && [ -d /app/empty ] && [ ! -e /bin/sleep ] && ok=1
echo $ok > /logs/verifier/reward.txt`, "bash", "sh", "env")
	// A tool's file that has its old content again is named, although nothing is lost.
	if reward != "1" || losses.Entries != 0 || got.code != 0 || got.message.DroppedEntries != 1 {
		t.Errorf("reward %q, %+v, %+v", reward, losses, got.message)
	}
}

// TestToolsOfTheCheckStayTheImages: each attack reaches its reward as soon as no tool is named.
func TestToolsOfTheCheckStayTheImages(t *testing.T) {
	tools := []string{"bash", "sh", "env"}
	const fake = `cp /usr/bin/cat /evil; `
	for name, attack := range map[string]string{
		"bash is another program":     fake + `rm /usr/bin/bash; cp /usr/bin/ls /usr/bin/bash`,
		"bash is gone":                `rm /usr/bin/bash`,
		"a bash before it":            `mkdir -p /usr/local/bin; cp /usr/bin/ls /usr/local/bin/bash`,
		"a folder of programs before": `mkdir -p /evil /usr/local; cp /usr/bin/ls /evil/bash; ln -s /evil /usr/local/bin`,
		"the folder is a link":        `mkdir /evil; cp /usr/bin/* /evil/; cp /usr/bin/ls /evil/bash; /evil/mv /usr/bin /usr/old; /evil/ln -s /evil /usr/bin`,
		"the link is a folder":        `cp -r /usr/bin /evil; cp /usr/bin/ls /evil/bash; /evil/rm /bin; /evil/mv /evil /bin`,
		"the loader is gone":          `cp /bin/ls /tmp/ls; for each in /lib64/ld-linux-x86-64.so.2; do rm $each; done`,
		"the library is another":      `for each in /lib/x86_64-linux-gnu/libc.so.6 /usr/lib/libc.so.6 /lib64/libc.so.6; do if [ -e $each ]; then echo x > /tmp/x; mv /tmp/x $each; fi; done`,
		"the list of libraries":       `mkdir /evil; cp /lib/*/libtinfo.so.6 /evil/; echo /evil > /etc/ld.so.conf; ldconfig; echo x > /evil/libtinfo.so.6`,
		"a library before all others": `echo /evil.so > /etc/ld.so.preload; echo x > /evil.so`,
	} {
		t.Run(name, func(t *testing.T) {
			sealed, digest, _ := agentWorks(t, `echo secret > /app/answer; `+attack)
			shell := "bash"
			if strings.HasPrefix(name, "the link") {
				shell = "/bin/bash"
			}
			reward, got := gradedBy(t, shell, sealed, digest, checkAnswer, tools...)
			if reward != "1" || got.message.DroppedEntries == 0 {
				t.Errorf("guarded: reward %q, %+v", reward, got.message)
			}
			for _, each := range got.message.Dropped {
				if each.Reason != "a tool of the check keeps what the image has" {
					t.Errorf("%+v", each)
				}
			}
			if strings.Contains(name, "before all others") {
				return // glibc warns and goes on without a library that it cannot load
			}
			if reward, _ := gradedBy(t, shell, sealed, digest, checkAnswer); reward == "1" {
				t.Error("without tools the attack changes nothing")
			}
		})
	}
}

// TestTheInterpreterOfAScriptStaysTheImages also when nobody names it.
func TestTheInterpreterOfAScriptStaysTheImages(t *testing.T) {
	sealed, digest, _ := agentWorks(t, `echo secret > /app/answer; rm /usr/bin/bash; cp /usr/bin/ls /usr/bin/bash`)
	for isScript, want := range map[bool]string{true: "1", false: ""} {
		verifier := newContainer(t)
		must(t, os.WriteFile(filepath.Join(verifier.folder, "candidate", "root.tar"), sealed, 0o644))
		must(t, os.WriteFile(filepath.Join(verifier.folder, "tests", "test.sh"), []byte("#!/bin/bash\n"+checkAnswer), 0o755))
		must(t, os.WriteFile(filepath.Join(verifier.folder, "tests", "expected"), []byte("secret\n"), 0o644))
		script := phase("reward", 60, "/tests/test.sh")
		script["script"] = isScript
		verifier.spec["phases"] = []any{script}
		verifier.spec["changes"] = map[string]any{
			"path": "/mounted/candidate/root.tar", "digest": digest, "excluded": ours, "tools": []string{"cat"},
		}
		if got := verifier.run(); strings.TrimSpace(verifier.read("reward/reward.txt")) != want {
			t.Errorf("script %v: %+v", isScript, got.message)
		}
	}
}

func TestLibrariesOfAnAgentAreFound(t *testing.T) {
	sealed, digest, _ := agentWorks(t, `mkdir -p /usr/local/lib; cp /lib/*/libacl.so.1 /usr/local/lib/; echo /usr/local/lib > /etc/ld.so.conf; ldconfig`)
	reward, got := graded(t, sealed, digest, `case "$(ldconfig -p)" in */usr/local/lib/libacl*) echo 1 > /logs/verifier/reward.txt;; esac`, "bash", "sh", "env")
	if reward != "1" || got.message.DroppedEntries != 0 {
		t.Errorf("reward %q, %+v", reward, got.message)
	}
}

// TestALinkDoesNotLeadToTheTests: the twin is a file with the answer.
func TestALinkDoesNotLeadToTheTests(t *testing.T) {
	for name, test := range map[string]struct{ attack, want string }{
		"straight":          {"ln -s /tests/expected /app/answer", "0"},
		"by another link":   {"ln -s /app/b /app/a; ln -s /tests /app/b; ln -s a/expected /app/answer", "0"},
		"by the root":       {"ln -s / /app/root; ln -s root/tests/expected /app/answer", "0"},
		"by a process":      {"ln -s /proc/self/root/tests/expected /app/answer", "0"},
		"a hard link":       {"ln /tests/expected /app/answer || echo wrong > /app/answer", "0"},
		"the answer itself": {"echo secret > /app/real; ln -s real /app/answer", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			sealed, digest, _ := agentWorks(t, test.attack)
			if reward, got := graded(t, sealed, digest, checkAnswer, "bash"); reward != test.want {
				t.Errorf("reward %q, %+v", reward, got.message)
			}
		})
	}
}

// TestNothingOfAnAgentWritesTheReward: what it leaves at our places and what it started is gone.
func TestNothingOfAnAgentWritesTheReward(t *testing.T) {
	for name, attack := range map[string]string{
		"a reward before the tests": `echo 1 > /logs/verifier/reward.txt`,
		"logs are a link":           `mv /logs /old && mkdir /mine && ln -s /mine /logs || true`,
		"tests are a link":          `rm -rf /tests 2>/dev/null; mkdir /evil; echo 'echo 1 > /logs/verifier/reward.txt' > /evil/test.sh; ln -s /evil /tests || true`,
		"a process that waits":      `(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) > /dev/null 2>&1 &`,
	} {
		t.Run(name, func(t *testing.T) {
			sealed, digest, _ := agentWorks(t, attack)
			if reward, got := graded(t, sealed, digest, checkAnswer, "bash"); reward != "0" || got.code != 0 {
				t.Errorf("reward %q, %+v", reward, got.message)
			}
		})
	}
}

// TestATimeLimitKeepsWhatIsThere and so does an agent that fails.
func TestATimeLimitKeepsWhatIsThere(t *testing.T) {
	for name, script := range map[string]string{"in time": "echo x > /app/x; exit 3", "too late": "echo x > /app/x; sleep 60"} {
		agent := newContainer(t)
		agent.spec["phases"] = []any{phase("harness", 0.5, "bash", "-c", script)}
		agent.spec["root"] = map[string]any{"excluded": ours, "bytes": 1 << 20, "entries": 100}
		got := agent.run()
		if !strings.Contains(agent.read("output/"+outcome.RootFile), "app/x") {
			t.Errorf("%s: %+v", name, got.message)
		}
	}
}

// TestAFileOfTheImageKeepsItsStatus below a writable layer: else all of the image were the agent's work.
func TestAFileOfTheImageKeepsItsStatus(t *testing.T) {
	sealed, _, losses := agentWorks(t, `ls -lR / > /dev/null 2>&1; cat /usr/bin/* > /dev/null; bash -c true; touch /app/new; true`)
	if names := tarNames(sealed); !slices.Equal(names, []string{"app/new"}) || losses.Entries != 0 {
		t.Errorf("%q, %+v", names, losses)
	}
}

func TestAModeAloneChangesOneFile(t *testing.T) {
	sealed, _, _ := agentWorks(t, `chmod 700 /usr/bin/cat; chmod 750 /app; mv /app/kept /app/other`)
	if names := tarNames(sealed); !slices.Equal(names, []string{"app/", "app/kept", "app/other", "usr/bin/cat"}) {
		t.Errorf("%q", names)
	}
}

func tarNames(archive []byte) []string {
	var names []string
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if err != nil {
			return names
		}
		names = append(names, header.Name)
	}
}
