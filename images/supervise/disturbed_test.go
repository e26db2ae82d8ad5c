package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
)

const mebibyte = 1 << 20

// addsLarge is a patch that adds a file of 4 MiB.
func (c *checkout) addsLarge() string {
	c.write("repo/large", strings.Repeat("\x00", 4*mebibyte))
	c.git("add", "-A")
	patch := c.git("diff", "--cached", "--binary", "--full-index")
	c.git("reset", "-q", "--hard")
	return patch
}

// killWriters has the kernel end every program that writes a file of more than 1 MiB.
func killWriters(t *testing.T) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: mebibyte, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &before) })
}

// smallDisk puts a file system of 2 MiB at a folder, with what the folder holds.
func (c *checkout) smallDisk(name string) {
	c.t.Helper()
	folder := c.path(name)
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=2m"); err != nil {
		c.t.Skipf("no file system can be mounted: %v", err)
	}
	c.t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
}

// A git that did not come to an end of its own says nothing about a patch: no code but that of
// staging, and the phase that tells whether a candidate may have caused it.
func TestAGitThatWasDisturbedJudgesNothing(t *testing.T) {
	const named = "diff --git a/no space left on device b/no space left on device\n--- a/no space left on device\n+++ b/no space left on device\n@@ -1 +1 @@\n-a\n+b\n"
	candidate := []string{outcome.PhaseCandidate}
	cases := map[string]struct {
		change func(*checkout)
		phases []string
		text   string
	}{
		"killed at the candidate": {func(c *checkout) {
			c.candidate(c.addsLarge(), "large")
			killWriters(c.t)
		}, candidate, "candidate_patch: git was ended by signal 25"},
		"killed before it": {func(c *checkout) {
			c.patch("setup_patch", c.addsLarge())
			killWriters(c.t)
		}, []string{"setup_patch"}, "git was ended by signal 25"},
		"a full disk": {func(c *checkout) {
			patch, base := c.addsLarge(), c.path("base")
			if err := exec.Command("cp", "-a", c.path("repo"), base).Run(); err != nil {
				c.t.Fatal(err)
			}
			c.smallDisk("repo")
			if err := exec.Command("cp", "-a", base+"/.", c.path("repo")).Run(); err != nil {
				c.t.Fatal(err)
			}
			c.candidate(patch, "large")
		}, candidate, "No space left on device"},
		"a candidate that forges the words": {func(c *checkout) {
			c.candidate(named, "no space left on device")
		}, candidate, "no space left on device"},
		// On a busy machine a git may have ended before the timer runs; the next one has not.
		"a time limit that is over at once": {func(c *checkout) {
			c.spec["timeout_seconds"] = 0.0001
		}, []string{"base_commit", "test_patch"}, "git did not end within 0.0001 s"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t)
			test.change(c)
			got := c.run()
			text := test.text
			if got.message.Phase != outcome.PhaseCandidate {
				text = got.message.Phase + ": " + text
			}
			if got.code != outcome.CodeStaging || !slices.Contains(test.phases, got.message.Phase) || !strings.Contains(got.message.Error, text) {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
		})
	}
}

func TestADiffThatTheNodePrevents(t *testing.T) {
	cases := map[string]struct {
		prepare func(*checkout)
		script  string
		text    string
	}{
		"git is killed": {func(c *checkout) { killWriters(c.t) }, "head -c 1048576 /dev/urandom > random", "git was ended by signal 25"},
		"a full disk":   {func(c *checkout) { c.smallDisk("scratch") }, "head -c 4000000 /dev/urandom > large", "No space left on device"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			_, got, diff := changedBy(t, test.prepare, test.script)
			if got.code != outcome.CodeStaging || got.message.Phase != outcome.PhaseCandidate || !strings.Contains(got.message.Error, test.text) || diff != "" {
				t.Errorf("got code %d, %+v", got.code, got.message)
			}
		})
	}
}
