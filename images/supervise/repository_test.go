package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/repository"
)

const (
	hello     = "diff --git a/hello b/hello\n--- a/hello\n+++ b/hello\n@@ -1 +1 @@\n-hello\n+HELLO\n"
	newTest   = "diff --git a/checks.sh b/checks.sh\nnew file mode 100644\n--- /dev/null\n+++ b/checks.sh\n@@ -0,0 +1 @@\n+grep -q HELLO hello\n"
	control   = "diff --git a/checks.sh b/checks.sh\n--- a/checks.sh\n+++ b/checks.sh\n@@ -1 +1,2 @@\n grep -q HELLO hello\n+false\n"
	wrongText = "diff --git a/hello b/hello\n--- a/hello\n+++ b/hello\n@@ -1 +1 @@\n-other\n+HELLO\n"
)

// checkout is a container whose image holds a repository.
type checkout struct {
	*fixture
	tests    map[string]any
	declared map[string]any
	spec     map[string]any
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	f := newFixture(t)
	c := &checkout{fixture: f, tests: map[string]any{}, declared: map[string]any{"version": 1, "changed": []string{"hello"}, "links": map[string]string{}}}
	for _, name := range []string{"repo", "scratch", "candidate"} {
		if err := os.Mkdir(f.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.write("repo/hello", "hello\n")
	c.write("repo/sub/other", "other\n")
	c.git("init", "-q")
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "base")
	c.spec = map[string]any{
		"workdir": f.path("repo"), "scratch": f.path("scratch"), "base_commit": c.head(),
		"timeout_seconds": 20, "setup_patch": nil, "test_patch": nil, "control": nil,
	}
	c.fixture.spec["verdict"] = true
	c.fixture.spec["open_modes"] = []any{f.path("output")}
	c.fixture.spec["phases"] = []any{phaseIn(f.path("repo"), "sh", "checks.sh")}
	c.candidate(hello, "hello")
	c.patch("test_patch", newTest)
	return c
}

func phaseIn(workdir string, command ...string) map[string]any {
	result := phase("checks", 20, command...)
	result["workdir"] = workdir
	return result
}

func (c *checkout) write(name, content string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(c.path(name), []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) git(words ...string) string {
	c.t.Helper()
	command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, words...)...)
	command.Dir = c.path("repo")
	command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	output, err := command.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %s", words, output)
	}
	return string(output)
}

func (c *checkout) head() string { return strings.TrimSpace(c.git("rev-parse", "HEAD")) }

func (c *checkout) candidate(patch string, changed ...string) *checkout {
	c.write("candidate/applied.patch", patch)
	c.declared["changed"] = changed
	return c
}

// patch gives an author's patch; the two forms of the row take turns.
func (c *checkout) patch(field, text string) *checkout {
	c.tests[field] = text
	if len(text)%2 == 0 {
		c.tests[field] = map[string]any{"source": "inline", "patch": text}
	}
	c.spec[field] = map[string]any{"path": c.path("lane/tests.json"), "field": field}
	return c
}

func (c *checkout) run() result {
	c.t.Helper()
	tests, _ := json.Marshal(c.tests)
	declared, _ := json.Marshal(c.declared)
	c.write("lane/tests.json", string(tests))
	c.write("candidate/declared.json", string(declared))
	for key, name := range map[string]string{"candidate": "candidate/applied.patch", "declared": "candidate/declared.json"} {
		content, err := os.ReadFile(c.path(name))
		if err != nil {
			c.t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		c.spec[key] = map[string]any{"path": c.path(name), "digest": "sha256:" + hex.EncodeToString(sum[:])}
	}
	c.fixture.spec["repository"] = c.spec
	return c.fixture.run()
}

func (c *checkout) changes() map[string]*string {
	c.t.Helper()
	content, err := os.ReadFile(c.path("output/changed.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var result map[string]*string
	if err := json.Unmarshal(content, &result); err != nil {
		c.t.Fatal(err)
	}
	return result
}

func added(path, mode, line string) string {
	return "diff --git a/" + path + " b/" + path + "\nnew file mode " + mode + "\n--- /dev/null\n+++ b/" + path +
		"\n@@ -0,0 +1 @@\n+" + line + "\n\\ No newline at end of file\n"
}

func TestRepositorySteps(t *testing.T) {
	cases := map[string]struct {
		change func(*checkout)
		want   int
		phase  string
		text   string
	}{
		"the right patch passes":           {func(*checkout) {}, outcome.CodeDone, "checks", ""},
		"a short commit is not compared":   {func(c *checkout) { c.spec["base_commit"] = "v1" }, outcome.CodeDone, "checks", ""},
		"an upper-case commit is the same": {func(c *checkout) { c.spec["base_commit"] = strings.ToUpper(c.head()) }, outcome.CodeDone, "checks", ""},
		"another patch fails":              {func(c *checkout) { c.candidate(strings.ReplaceAll(hello, "HELLO", "HALLO"), "hello") }, outcome.CodeFailed, "checks", ""},
		"no repository":                    {func(c *checkout) { c.spec["workdir"] = c.path("lane") }, outcome.CodePhase + repository.StepHead, "base_commit", "not a git repository"},
		"no such folder":                   {func(c *checkout) { c.spec["workdir"] = c.path("none") }, outcome.CodePhase + repository.StepHead, "base_commit", "cannot be used"},
		"another commit":                   {func(c *checkout) { c.spec["base_commit"] = strings.Repeat("0", 40) }, outcome.CodePhase + repository.StepBase, "base_commit", "HEAD is"},
		"the setup patch does not apply":   {func(c *checkout) { c.patch("setup_patch", wrongText) }, outcome.CodePhase + repository.StepSetup, "setup_patch", "does not apply"},
		"the setup patch comes first": {func(c *checkout) {
			c.patch("setup_patch", strings.ReplaceAll(hello, "HELLO", "setup"))
			c.candidate(strings.ReplaceAll(hello, "-hello", "-setup"), "hello")
		}, outcome.CodeDone, "checks", ""},
		"the test patch never applies": {func(c *checkout) { c.patch("test_patch", wrongText) }, outcome.CodePhase + repository.StepTestAlone, "test_patch", "does not apply"},
		"the candidate does not apply": {func(c *checkout) { c.candidate(wrongText, "hello") }, outcome.CodePhase + repository.StepCandidate, "candidate_patch", "does not apply"},
		"the candidate stands in the way of the tests": {func(c *checkout) {
			c.candidate(hello+added("checks.sh", "100644", "true"), "hello", "checks.sh")
		}, outcome.CodePhase + repository.StepTest, "test_patch", "already exists"},
		"the control is noticed": {func(c *checkout) { c.patch("control", control) }, outcome.CodeDone, "checks", ""},
		"a forged success": {func(c *checkout) {
			c.patch("control", control)
			c.fixture.spec["phases"] = []any{phaseIn(c.path("repo"), "true")}
		}, outcome.CodeTampered, "checks", ""},
		"a control that hangs": {func(c *checkout) {
			c.patch("control", control)
			c.fixture.spec["phases"] = []any{phase("checks", 0.2, "sleep", "60")}
		}, outcome.CodeDone, "checks", ""},
		"the control never applies": {func(c *checkout) { c.patch("control", wrongText) }, outcome.CodePhase + repository.StepTestAlone, "test_patch", "does not apply"},
		"the control does not apply to the candidate": {func(c *checkout) {
			c.patch("control", strings.ReplaceAll(hello, "HELLO", "control"))
		}, outcome.CodePhase + repository.StepControl, "test_patch", "does not apply"},
		"the check runs too long": {func(c *checkout) {
			c.fixture.spec["phases"] = []any{phase("checks", 0.2, "sleep", "60")}
		}, outcome.CodeTimeout, "checks", ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			test.change(c)
			got := c.run()
			if got.code != test.want || got.message.Phase != test.phase || !strings.Contains(got.message.Error, test.text) {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
			if got.code != outcome.CodeOwnFault && got.code != outcome.CodePhase+repository.StepHead && got.message.Commit != c.head() {
				t.Errorf("commit is %q", got.message.Commit)
			}
			if left, _ := os.ReadDir(c.path("scratch")); len(left) != 0 {
				t.Errorf("the scratch folder holds %v", left)
			}
		})
	}
}

func TestReallyChangedPathsAreCompared(t *testing.T) {
	target := "hello"
	outside := "/etc/passwd"
	cases := map[string]struct {
		patch    string
		declared []string
		links    map[string]string
		want     int
		changed  map[string]*string
	}{
		"as declared":     {added("new", "100644", "x"), []string{"new"}, nil, outcome.CodeDone, nil},
		"one more":        {hello + added("new", "100644", "x"), []string{"hello"}, nil, outcome.CodePhase + repository.StepPaths, map[string]*string{"hello": nil, "new": nil}},
		"one less":        {hello, []string{"hello", "sub/other"}, nil, outcome.CodePhase + repository.StepPaths, map[string]*string{"hello": nil}},
		"mode":            {"diff --git a/hello b/hello\nold mode 100644\nnew mode 100755\n", []string{"hello"}, nil, outcome.CodeDone, nil},
		"deletion":        {"diff --git a/hello b/hello\ndeleted file mode 100644\n--- a/hello\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n", []string{"hello"}, nil, outcome.CodeDone, nil},
		"rename":          {"diff --git a/hello b/moved\nrename from hello\nrename to moved\n", []string{"hello", "moved"}, nil, outcome.CodeDone, nil},
		"copy":            {"diff --git a/hello b/copy\ncopy from hello\ncopy to copy\n", []string{"copy"}, nil, outcome.CodeDone, nil},
		"declared link":   {added("l", "120000", target), []string{"l"}, map[string]string{"l": target}, outcome.CodeDone, nil},
		"other link":      {added("l", "120000", outside), []string{"l"}, map[string]string{"l": target}, outcome.CodePhase + repository.StepPaths, map[string]*string{"l": &outside}},
		"undeclared link": {added("l", "120000", target), []string{"l"}, nil, outcome.CodePhase + repository.StepPaths, map[string]*string{"l": &target}},
		"an ignored file": {added("x.ignored", "100644", "x"), []string{"other"}, nil, outcome.CodePhase + repository.StepPaths, map[string]*string{"x.ignored": nil}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			c.write("repo/.gitignore", "*.ignored\n")
			c.candidate(test.patch, test.declared...)
			if test.links != nil {
				c.declared["links"] = test.links
			}
			c.fixture.spec["phases"] = []any{phaseIn(c.path("repo"), "true")}
			got := c.run()
			if got.code != test.want {
				t.Fatalf("got code %d, %+v", got.code, got.message)
			}
			if test.changed != nil && !reflect.DeepEqual(c.changes(), test.changed) {
				t.Errorf("got %v", c.changes())
			}
		})
	}
}

// The repository's own settings, attributes and hooks run programs in an ordinary git.
func TestTheRepositoryCannotRunPrograms(t *testing.T) {
	c := newCheckout(t)
	marker := c.path("marker")
	program := "touch " + marker + "; cat"
	for _, key := range []string{"core.fsmonitor", "diff.external", "filter.x.clean", "filter.x.smudge", "core.pager", "core.sshCommand", "diff.x.textconv"} {
		c.git("config", key, program)
	}
	c.write("repo/.gitattributes", "* filter=x diff=x\n")
	c.write("repo/.git/hooks/post-checkout", "#!/bin/sh\n"+program+"\n")
	if got := c.run(); got.code != outcome.CodeDone {
		t.Errorf("got code %d, %+v", got.code, got.message)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program of the repository ran")
	}
	if err := os.WriteFile(c.path("repo/hello"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_ = exec.Command("git", "-C", c.path("repo"), "status").Run()
	if _, err := os.Stat(marker); err != nil {
		t.Error("the probe proves nothing: an ordinary git runs no program either")
	}
}

func TestBytesArriveAsTheyAre(t *testing.T) {
	c := newCheckout(t)
	c.write("repo/dos", "a\r\nb\r\n")
	c.write("repo/.gitattributes", "* text eol=crlf ident\n")
	c.candidate("diff --git a/dos b/dos\n--- a/dos\n+++ b/dos\n@@ -1,2 +1,2 @@\n-a\r\n+$Id$\r\n b\r\n", "dos")
	c.fixture.spec["phases"] = []any{phaseIn(c.path("repo"), "sh", "-c", `[ "$(od -An -c dos | tr -d ' \n')" = '$Id$\r\nb\r\n' ]`)}
	if got := c.run(); got.code != outcome.CodeDone {
		t.Errorf("got code %d, %+v", got.code, got.message)
	}
}

func TestAChangedCandidateIsRefused(t *testing.T) {
	c := newCheckout(t)
	c.run()
	c.write("candidate/applied.patch", wrongText)
	if got := c.fixture.run(); got.code != outcome.CodeStaging {
		t.Errorf("got code %d, %+v", got.code, got.message)
	}
}

func TestAPatchWritesNothingOutside(t *testing.T) {
	for name, patch := range map[string]string{
		"parent":         added("../escaped", "100644", "x"),
		"absolute":       strings.ReplaceAll(added("X", "100644", "x"), "/X", "//tmp/sb-escaped"),
		"through a link": added("l", "120000", "..") + added("l/escaped", "100644", "x"),
		"git folder":     added(".git/hooks/x", "100644", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t).candidate(patch, "x")
			if got := c.run(); got.code != outcome.CodePhase+repository.StepCandidate && got.code != outcome.CodePhase+repository.StepPaths {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
			for _, path := range []string{c.path("escaped"), "/tmp/sb-escaped", c.path("repo/.git/hooks/x")} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("%s is there", path)
				}
			}
		})
	}
}
