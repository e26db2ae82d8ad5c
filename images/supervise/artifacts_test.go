package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

// agentLeaves runs a command and returns its sealed artifacts.
func agentLeaves(t *testing.T, script string, artifacts ...map[string]any) ([]byte, string, outcome.Losses) {
	t.Helper()
	agent := newContainer(t)
	work := phase("harness", 60, "bash", "-c", script)
	work["workdir"] = "/app"
	agent.spec["phases"] = []any{work}
	agent.spec["root"] = map[string]any{"excluded": ours, "bytes": 100 << 20, "entries": 10_000, "artifacts": artifacts}
	if got := agent.run(); got.code != 0 || got.message.ExitCode != 0 {
		t.Fatalf("agent: %+v: %s", got.message, agent.read("output/stderr"))
	}
	return sealedBy(t, agent)
}

func source(path string, exclude ...string) map[string]any {
	return map[string]any{"source": path, "exclude": append([]string{}, exclude...)}
}

func TestArtifactsAreWhatIsThereInTheEnd(t *testing.T) {
	const script = `mkdir -p out/deep/cache /opt/x; echo 1 > out/a.txt; echo 2 > out/deep/b.pyc; echo 3 > out/deep/cache/c
ln -s /etc/nsswitch.conf out/link; ln -s /opt /way; echo 4 > /opt/x/y; mkfifo out/pipe 2>/dev/null; echo other > /opt/other; (sleep 60 &)`
	for name, test := range map[string]struct {
		artifacts []map[string]any
		want      []string
		lost      string
	}{
		"a file that nobody changed": {[]map[string]any{source("/app/kept")}, []string{"app/kept"}, ""},
		"a relative folder":          {[]map[string]any{source("out/deep")}, []string{"app/out/deep/", "app/out/deep/b.pyc", "app/out/deep/cache/", "app/out/deep/cache/c"}, ""},
		"without what is left out":   {[]map[string]any{source("/app/out", "*.pyc", "cache", "./link")}, []string{"app/out/", "app/out/a.txt", "app/out/deep/"}, ""},
		"a pattern with slashes":     {[]map[string]any{source("/app/out", "deep/cache", "[!a]*.pyc")}, []string{"app/out/", "app/out/a.txt", "app/out/deep/", "app/out/link"}, ""},
		"one inside another":         {[]map[string]any{source("/app/out/deep"), source("/app/out", "deep", "link")}, []string{"app/out/", "app/out/a.txt", "app/out/deep/", "app/out/deep/b.pyc", "app/out/deep/cache/", "app/out/deep/cache/c"}, ""},
		"the same one twice":         {[]map[string]any{source("/app/kept"), source("kept")}, []string{"app/kept"}, ""},
		"a file has no patterns":     {[]map[string]any{source("/app/kept", "kept")}, []string{"app/kept"}, ""},
		"one that is missing":        {[]map[string]any{source("/app/kept"), source("/app/gone/x")}, []string{"app/kept"}, "app/gone/x"},
		"behind a link":              {[]map[string]any{source("/way/x")}, nil, "way/x"},
		"below the kernel's own":     {[]map[string]any{source("/proc/1/environ")}, nil, "proc/1/environ"},
		"a place of the framework":   {[]map[string]any{source("/tests/expected")}, nil, ""},
		"a link is itself":           {[]map[string]any{source("/way")}, []string{"way"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sealed, _, losses := agentLeaves(t, script, test.artifacts...)
			var lost string
			for _, each := range losses.Named {
				lost += each.Path
			}
			if names := tarNames(sealed); !slices.Equal(names, test.want) || strings.TrimPrefix(lost, "/") != test.lost {
				t.Errorf("%q, %+v", names, losses)
			}
		})
	}
}

// TestArtifactsReplaceWhatTheVerifierHas: the folder of an artifact has nothing else, other places keep what they have.
func TestArtifactsReplaceWhatTheVerifierHas(t *testing.T) {
	sealed, digest, _ := agentLeaves(t, `mkdir -p /data/new out; echo 1 > out/mine; echo 2 > /data/new/x; echo evil > /usr/bin/cat`,
		source("/app/out"), source("/data/new/x"))
	for replaces, want := range map[bool]string{true: "mine 1 2 kept", false: "image.txt mine 1 2 kept"} {
		verifier := newContainer(t)
		must(t, os.MkdirAll(filepath.Join(verifier.folder, "upper/app/out/deep"), 0o755))
		must(t, os.WriteFile(filepath.Join(verifier.folder, "upper/app/out/image.txt"), nil, 0o644))
		must(t, os.Remove(filepath.Join(verifier.folder, "upper/app/out/deep")))
		must(t, os.WriteFile(filepath.Join(verifier.folder, "candidate", "root.tar"), sealed, 0o644))
		must(t, os.WriteFile(filepath.Join(verifier.folder, "tests", "test.sh"),
			[]byte(`echo $(ls /app/out) $(cat /app/out/mine /data/new/x /app/kept) > /logs/verifier/reward.txt`), 0o755))
		verifier.spec["phases"] = []any{phase("reward", 60, "bash", "/tests/test.sh")}
		verifier.spec["changes"] = map[string]any{
			"path": "/mounted/candidate/root.tar", "digest": digest, "excluded": ours, "tools": []string{"bash"}, "replaces": replaces,
		}
		got := verifier.run()
		if said := strings.TrimSpace(verifier.read("reward/reward.txt")); said != want {
			t.Errorf("replaces %v: %q, %+v: %s", replaces, said, got.message, verifier.read("output/stderr"))
		}
	}
}

// TestALinkInAnArtifactDoesNotLeadToTheTests: the twin is a file with the answer.
func TestALinkInAnArtifactDoesNotLeadToTheTests(t *testing.T) {
	for name, test := range map[string]struct{ attack, want string }{
		"straight":          {"ln -s /tests/expected answer", "0"},
		"in a folder":       {"mkdir new; ln -s /tests new/all; ln -s new/all/expected answer", "0"},
		"to the reward":     {"ln -s /logs/verifier/reward.txt answer", "0"},
		"the answer itself": {"echo secret > new; ln -s new answer", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			sealed, digest, _ := agentLeaves(t, test.attack, source("answer"), source("new"))
			if reward, got := graded(t, sealed, digest, checkAnswer, "bash"); reward != test.want {
				t.Errorf("reward %q, %+v", reward, got.message)
			}
		})
	}
}
