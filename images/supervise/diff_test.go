package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/repository"
)

// changedBy runs a script in a repository and returns what supervise says and the diff.
func changedBy(t *testing.T, prepare func(*checkout), script string) (*checkout, result, string) {
	t.Helper()
	c := newCheckout(t)
	c.write("repo/gone", "gone\n")
	c.write("repo/tool", "#!/bin/sh\n")
	c.write("repo/.gitignore", "*.o\nkept.o\n")
	c.write("repo/kept.o", "tracked although ignored\n")
	c.write("repo/dos", "a\r\nb\r\n")
	c.write("repo/latin", "caf\xe9\n")
	c.write("repo/.gitattributes", "dos text eol=crlf\n")
	c.git("add", "-A", "-f")
	c.git("commit", "-q", "-m", "more")
	if prepare != nil {
		prepare(c)
	}
	c.fixture.spec["verdict"] = false
	c.fixture.spec["diff"] = map[string]any{"workdir": c.path("repo"), "scratch": c.path("scratch"), "timeout_seconds": 20, "bytes": 1 << 20}
	c.fixture.spec["phases"] = []any{phaseIn(c.path("repo"), "sh", "-ec", script)}
	got := c.fixture.run()
	text, _ := os.ReadFile(c.path("output/diff"))
	return c, got, string(text)
}

// apply applies the diff to the checkout as the verifier does.
func (c *checkout) apply(diff string) {
	c.t.Helper()
	c.write("repo/.git/info/attributes", repository.GitAttributes)
	command := exec.Command("git", "-C", c.path("repo"), "apply", "--binary", "-")
	command.Stdin = strings.NewReader(diff)
	if output, err := command.CombinedOutput(); err != nil {
		c.t.Fatalf("%s\n%s", output, diff)
	}
}

func isMade(d *outcome.DiffReport) bool { return d != nil && d.ExitCode != nil && *d.ExitCode == 0 }

func exitCodeOf(d *outcome.DiffReport) string {
	if d.ExitCode == nil {
		return "none"
	}
	return strconv.Itoa(*d.ExitCode)
}

func TestDiffHasWhatChanged(t *testing.T) {
	const work = `echo more >> hello; rm gone; chmod +x tool; printf '\000\001' > binary; echo new > "a b"; echo ü > 'ü "q"'
		mkdir -p deep/er; echo x > deep/er/file; mv sub/other sub/moved; ln -s hello link; echo o > x.o; echo change >> kept.o; : > empty`
	want := []string{
		"diff --git a/hello b/hello\n", "deleted file mode 100644\n", "old mode 100644\nnew mode 100755\n", "GIT binary patch\n",
		"diff --git \"a/a b\" \"b/a b\"\n", "+++ \"b/a b\"\n", `"a/\303\274 \"q\""`, "b/deep/er/file\n", "a/sub/other b/sub/other\n",
		"b/sub/moved\n", "new file mode 120000\n", "a/kept.o b/kept.o\n", "a/empty b/empty\nnew file mode",
	}
	cases := map[string]string{
		"untouched history":  "",
		"staged":             "git add -A",
		"committed":          "git add -A; git -c user.name=a -c user.email=a@a commit -q -m x",
		"history rewritten":  "git add -A; git -c user.name=a -c user.email=a@a commit -q --amend -m x; git reflog expire --expire=now --all; git gc -q --prune=now",
		"repository gone":    "rm -rf .git",
		"new repository":     "rm -rf .git; git init -q; git add -A",
		"index tricks":       "git update-index --assume-unchanged hello; git update-index --skip-worktree tool",
		"excluded":           "echo '*' > .git/info/exclude",
		"replaced settings":  "git config core.excludesFile /dev/zero; git config core.worktree /; git config core.bare true",
		"objects taken away": "chmod -R u+w .git; rm -rf .git/objects",
	}
	for name, more := range cases {
		t.Run(name, func(t *testing.T) {
			_, got, diff := changedBy(t, nil, work+"\n"+more)
			if got.code != outcome.CodeDone || !isMade(got.message.Diff) || got.message.Diff.Stderr != "" || got.message.Diff.Baseline != repository.BaselineClean {
				t.Fatalf("got code %d, %+v, %+v", got.code, got.message, got.message.Diff)
			}
			for _, part := range want {
				if !strings.Contains(diff, part) {
					t.Errorf("%q is missing", part)
				}
			}
			if strings.Contains(diff, "x.o") || strings.Contains(diff, "/dos") {
				t.Errorf("it has more than was changed:\n%s", diff)
			}
		})
	}
}

func TestDiffAppliesToTheBase(t *testing.T) {
	c, _, diff := changedBy(t, nil, `printf 'a\r\nc\r\n' > dos; printf 'th\351\n' >> latin; echo x > "a b"; printf '%s\n' '--- a/x y' '@@ -1 +1 @@' > odd`)
	fresh, _, _ := changedBy(t, nil, "true")
	fresh.apply(diff)
	for _, name := range []string{"dos", "latin", "a b", "odd"} {
		mine, _ := os.ReadFile(c.path("repo/" + name))
		theirs, _ := os.ReadFile(fresh.path("repo/" + name))
		if string(mine) != string(theirs) {
			t.Errorf("%s: %q is not %q", name, theirs, mine)
		}
	}
}

func TestDiffLeavesOutWhatWasThereBefore(t *testing.T) {
	_, got, diff := changedBy(t, func(c *checkout) {
		c.write("repo/dirty", "before\n")
		c.write("repo/hello", "changed before\n")
	}, "echo x > new")
	if got.message.Diff == nil || got.message.Diff.Baseline != repository.BaselineCommitted {
		t.Fatalf("got %+v", got.message)
	}
	if strings.Contains(diff, "dirty") || strings.Contains(diff, "hello") || !strings.Contains(diff, "b/new") {
		t.Errorf("got %s", diff)
	}
}

// The file is written well after a second begins: the clock of files lags by a tick of the kernel.
func TestDiffReadsWhatKeptItsLengthAndItsSecond(t *testing.T) {
	_, _, diff := changedBy(t, func(c *checkout) {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1050 * time.Millisecond)))
		c.write("repo/tool", "#!/bin/ed\n")
	}, `echo '#!/bin/vi' > tool; second=$(date +%s); while [ "$(date +%s)" = "$second" ]; do sleep 0.05; done`)
	if !strings.Contains(diff, "-#!/bin/ed\n+#!/bin/vi\n") {
		t.Errorf("got %s", diff)
	}
}

func TestDiffRunsNothingOfTheRepository(t *testing.T) {
	c, got, diff := changedBy(t, nil, `m=$(pwd)/../marker
		for key in core.fsmonitor diff.external filter.x.clean diff.x.textconv; do git config $key "touch $m; cat"; done
		for folder in ../scratch/git-*; do
			printf '[core]\n\tfsmonitor = "touch %s; cat"\n[filter "x"]\n\tclean = "touch %s; cat"\n' $m $m > $folder/git/config
			cp $folder/git/config $folder/config; printf '* filter=x\n' > $folder/git/info/attributes
		done
		echo '* filter=x diff=x' > .gitattributes; echo x > new`)
	if _, err := os.Stat(c.path("marker")); err == nil {
		t.Error("a program of the repository ran")
	}
	if !isMade(got.message.Diff) || !strings.Contains(diff, "b/new") {
		t.Errorf("got %+v", got.message.Diff)
	}
}

func TestADiffThatCannotBeMade(t *testing.T) {
	for name, made := range map[string]struct{ script, exitCode, stderr string }{
		"folder gone":   {"cd /; rm -rf \"$OLDPWD\"", "126", "cannot be used"},
		"objects gone":  {"rm -rf ../scratch/*/git/objects/*", "128", "fatal: "},
		"scratch gone":  {"rm -rf ../scratch/*", "none", "no such file"},
		"larger than 1": {"head -c 3000000 /dev/zero | tr '\\0' 'x' > big", "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, got, diff := changedBy(t, nil, "echo x >> hello; "+made.script)
			if got.code != outcome.CodeDone || got.message.Diff == nil {
				t.Fatalf("got code %d, %+v", got.code, got.message)
			}
			tooLarge := len(diff) == 1<<20+1
			if report := got.message.Diff; isMade(report) != tooLarge || exitCodeOf(report) != made.exitCode || !strings.Contains(report.Stderr, made.stderr) {
				t.Errorf("got %+v with exit code %s and %d bytes", report, exitCodeOf(report), len(diff))
			}
		})
	}
	c, got, _ := changedBy(t, func(c *checkout) { _ = os.RemoveAll(c.path("repo/.git")) }, "true")
	if got.code != outcome.CodeStaging {
		t.Errorf("without a repository: code %d in %s", got.code, c.root)
	}
}

func TestNoDiffWithoutAnEndOfItsOwn(t *testing.T) {
	c := newCheckout(t)
	c.fixture.spec["verdict"] = false
	c.fixture.spec["diff"] = map[string]any{"workdir": c.path("repo"), "scratch": c.path("scratch"), "timeout_seconds": 20, "bytes": 1 << 20}
	phase := phaseIn(c.path("repo"), "sleep", "60")
	phase["timeout_seconds"] = 0.2
	c.fixture.spec["phases"] = []any{phase}
	if got := c.fixture.run(); got.code != outcome.CodeTimeout || got.message.Diff != nil {
		t.Errorf("got code %d, %+v", got.code, got.message.Diff)
	}
}

// Names of files stand in what is said of a diff, so the agent chooses these bytes.
func TestWhatGitSaysOfADiffIsBounded(t *testing.T) {
	_, got, diff := changedBy(t, nil, `echo > nested; for n in $(seq 140); do
			mkdir -p "$(printf 'nested%d\033\001\377<' $n)/.git"
		done`)
	report := got.message.Diff
	if !isMade(report) || !strings.Contains(diff, "nested") || !strings.Contains(report.Stderr, "nested") {
		t.Fatalf("got %+v", report)
	}
	if len(report.Stderr) > repository.DiffStderrBytes || !utf8.ValidString(report.Stderr) {
		t.Errorf("got %d bytes: %q", len(report.Stderr), report.Stderr)
	}
}
