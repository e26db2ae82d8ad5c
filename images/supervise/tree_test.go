package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"securebench.dev/supervise/internal/outcome"
)

func TestCopyKeepsWhatItShould(t *testing.T) {
	f := newFixture(t)
	f.write("from/bin/tool", "#!")
	f.write("from/closed/inside", "x")
	for name, mode := range map[string]os.FileMode{"from/bin/tool": 0o755 | os.ModeSetuid, "from/closed": 0o500} {
		if err := os.Chmod(f.path(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Unix(1_000_000_000, 0)
	if err := os.Chtimes(f.path("from/bin/tool"), before, before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(f.path("from/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"from/up": "../../..", "from/folder": "bin"} {
		if err := os.Symlink(target, f.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	f.shed()
	running := f.start(f.program("copy", fmt.Sprintf(`{"version":1,"source":%q,"to":%q}`, f.path("from"), f.path("workspace"))))
	if got := f.finish(running); got.code != outcome.CodeDone {
		t.Fatalf("got %+v", got.message)
	}
	tool, err := os.Stat(f.path("workspace/bin/tool"))
	if err != nil || tool.Mode() != 0o755 || !tool.ModTime().Equal(before) {
		t.Errorf("tool: %v, %v", tool, err)
	}
	closed, err := os.Stat(f.path("workspace/closed"))
	if err != nil || closed.Mode().Perm() != 0o500 || f.read("workspace/closed/inside") != "x" {
		t.Errorf("closed: %v, %v", closed, err)
	}
	if target, err := os.Readlink(f.path("workspace/up")); err != nil || target != "../../.." {
		t.Errorf("link: %q, %v", target, err)
	}
	if _, err := os.Lstat(f.path("workspace/fifo")); err == nil {
		t.Error("a FIFO was copied")
	}
}

func TestCopyFromNowhereSaysSo(t *testing.T) {
	f := newFixture(t)
	running := f.start(f.program("copy", fmt.Sprintf(`{"version":1,"source":%q,"to":%q}`, f.path("gone"), f.path("workspace"))))
	if got := f.finish(running); got.code != outcome.CodeStaging || !strings.Contains(got.message.Error, "gone") {
		t.Errorf("got %+v", got.message)
	}
}

func TestCopyRemovesWhatStandsInTheWay(t *testing.T) {
	f := newFixture(t)
	f.write("guarded/file", "untouched")
	f.write("from/securebench/public/a.json", "ours")
	f.write("from/task.json", "ours")
	f.write("workspace/task.json/deep/er/x", "theirs")
	if err := os.Symlink("../guarded", f.path("workspace/securebench")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.path("workspace/task.json/deep"), 0o500); err != nil {
		t.Fatal(err)
	}
	f.shed()
	f.spec["copies"] = []any{map[string]any{"source": f.path("from"), "to": f.path("workspace")}}
	if got := f.phases(shell("true")).run(); got.code != outcome.CodeDone {
		t.Fatalf("got %+v", got.message)
	}
	if f.read("workspace/securebench/public/a.json") != "ours" || f.read("workspace/task.json") != "ours" {
		t.Error("not copied")
	}
	if entries, _ := os.ReadDir(f.path("guarded")); len(entries) != 1 || f.read("guarded/file") != "untouched" {
		t.Errorf("a link was followed: %v", entries)
	}
}

func TestProtectedPathsStayUntouched(t *testing.T) {
	f := newFixture(t)
	f.write("workspace/securebench/evaluation_inputs/answer", "trusted")
	f.write("workspace/data/in.csv", "trusted")
	f.write("from/securebench/evaluation_inputs/answer", "forged")
	f.write("from/securebench/note", "kept")
	f.write("from/data", "a file in place of a parent")
	f.write("from/other", "kept")
	f.spec["protected"] = []any{f.path("workspace/securebench/evaluation_inputs"), f.path("workspace/data/in.csv")}
	f.spec["copies"] = []any{map[string]any{"source": f.path("from"), "to": f.path("workspace")}}
	if got := f.phases(shell("true")).run(); got.code != outcome.CodeDone {
		t.Fatalf("got %+v", got.message)
	}
	for name, want := range map[string]string{
		"securebench/evaluation_inputs/answer": "trusted", "data/in.csv": "trusted",
		"securebench/note": "kept", "other": "kept",
	} {
		if got := f.read("workspace/" + name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

type member struct {
	name, content, link string
	kind                byte
	mode                int64
}

func (f *fixture) candidate(members ...member) {
	f.t.Helper()
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, each := range members {
		header := &tar.Header{Name: each.name, Linkname: each.link, Typeflag: each.kind, Mode: each.mode, Size: int64(len(each.content))}
		if err := writer.WriteHeader(header); err != nil {
			f.t.Fatal(err)
		}
		if _, err := writer.Write([]byte(each.content)); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.write("candidate/workspace.tar", archive.String())
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(archive.Bytes()))
	f.spec["candidate"] = map[string]any{"path": f.path("candidate/workspace.tar"), "digest": digest, "to": f.path("workspace")}
}

func TestCandidateIsUnpacked(t *testing.T) {
	f := newFixture(t)
	f.write("workspace/tool", "in the way")
	f.write("workspace/data/in.csv", "trusted")
	f.spec["protected"] = []any{f.path("workspace/data/in.csv")}
	long := strings.Repeat("long/", 60) + strings.Repeat("n", 200)
	f.candidate(
		member{name: "sub/", kind: tar.TypeDir, mode: 0o755},
		member{name: "sub/link", kind: tar.TypeSymlink, link: "../tool"},
		member{name: "tool", kind: tar.TypeReg, mode: 0o4755, content: "new"},
		member{name: long, kind: tar.TypeReg, mode: 0o644, content: "deep"},
		member{name: "data/in.csv", kind: tar.TypeReg, mode: 0o644, content: "forged"},
		member{name: "data", kind: tar.TypeReg, mode: 0o644, content: "forged"},
	)
	if got := f.phases(shell("true")).run(); got.code != outcome.CodeDone {
		t.Fatalf("got %+v", got.message)
	}
	info, err := os.Stat(f.path("workspace/sub/link"))
	if err != nil || info.Mode() != 0o755 || f.read("workspace/tool") != "new" {
		t.Errorf("tool: %v, %v", info, err)
	}
	if f.read("workspace/"+long) != "deep" || f.read("workspace/data/in.csv") != "trusted" {
		t.Error("content is wrong")
	}
}

func TestHostileCandidatesAreRefused(t *testing.T) {
	file := func(name string) []member { return []member{{name: name, kind: tar.TypeReg, content: "x"}} }
	link := func(name, target string) []member {
		return []member{{name: name, kind: tar.TypeSymlink, link: target}}
	}
	cases := map[string][]member{
		"a step up":                 file("../outside"),
		"a step up in between":      file("a/../../outside"),
		"an absolute name":          file("/tmp/outside"),
		"a dot":                     file("./a"),
		"a doubled slash":           file("a//b"),
		"a hard link":               {{name: "h", kind: tar.TypeLink, link: "../outside"}},
		"a FIFO":                    {{name: "f", kind: tar.TypeFifo}},
		"a device":                  {{name: "d", kind: tar.TypeChar}},
		"a hard link by a link":     {link("l", "../outside")[0], {name: "h", kind: tar.TypeLink, link: "l"}},
		"a hard link to a folder":   {{name: "d/", kind: tar.TypeDir}, {name: "h", kind: tar.TypeLink, link: "d"}},
		"the folder itself, a file": file("."),
		"an empty link":             link("l", ""),
		"a promise that is not met": nil,
	}
	for name, members := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.candidate(members...)
			if members == nil {
				f.write("candidate/workspace.tar", "no archive at all"+strings.Repeat("x", 1000))
			}
			got := f.phases(shell("true")).run()
			// What is no candidate of the expected digest is not the agent's.
			if got.code != outcome.CodeStaging || (got.message.Phase == outcome.PhaseCandidate) != (members != nil) {
				t.Errorf("got %+v", got.message)
			}
			if _, err := os.Lstat(f.path("outside")); err == nil {
				t.Error("something was written outside")
			}
		})
	}
}

func TestCandidateNeverWritesThroughALink(t *testing.T) {
	f := newFixture(t)
	f.write("guarded/file", "untouched")
	if err := os.Symlink(f.path("guarded"), f.path("workspace/planted")); err != nil {
		t.Fatal(err)
	}
	f.candidate(
		member{name: "sub/", kind: tar.TypeDir, mode: 0o755},
		member{name: "sub/l", kind: tar.TypeSymlink, link: "../sub"},
		member{name: "sub/l/file", kind: tar.TypeReg, content: "new"},
		member{name: "planted/file", kind: tar.TypeReg, content: "new"},
	)
	if got := f.phases(shell("true")).run(); got.code != outcome.CodeDone {
		t.Fatalf("got %+v", got.message)
	}
	if f.read("guarded/file") != "untouched" || f.read("workspace/planted/file") != "new" {
		t.Error("a link was followed")
	}
}

func TestModesAreOpened(t *testing.T) {
	f := newFixture(t)
	f.write("guarded", "x")
	if err := os.Chmod(f.path("guarded"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := shell(`umask 077; mkdir -p a/b; echo x > a/b/f; echo y > run; chmod 700 run; ln run a/b/same; ln -s ../guarded link; chmod 0 a/b/f a/b a; chmod 0 .`)
	one["workdir"] = f.path("workspace")
	f.shed()
	f.phases(one).run()
	for name, want := range map[string]os.FileMode{"workspace": 0o755, "workspace/a": 0o755, "workspace/a/b": 0o755, "workspace/a/b/f": 0o644, "workspace/run": 0o744, "guarded": 0o600} {
		info, err := os.Stat(f.path(name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	listed := strings.Split(strings.TrimSuffix(f.read("output/modes"), "\x00"), "\x00")
	slices.Sort(listed)
	if want := []string{"0000 .", "0000 a", "0000 a/b", "0000 a/b/f", "0700 a/b/same", "0700 run"}; !slices.Equal(listed, want) {
		t.Errorf("the earlier modes are %q", listed)
	}
}

func TestModesOfAVeryDeepTreeEnd(t *testing.T) {
	f := newFixture(t)
	one := shell(`i=0; while [ $i -lt 2100 ]; do mkdir d && cd -P d || exit 1; i=$((i+1)); done`)
	one["workdir"] = f.path("workspace")
	if got := f.phases(one).run(); got.code != outcome.CodeDone || got.message.ExitCode != 0 {
		t.Errorf("got %+v", got.message)
	}
	removeDeep(t, f.path("workspace/d"))
}

// removeDeep removes a chain of folders "d" that no path can name.
func removeDeep(t *testing.T, top string) {
	t.Helper()
	for {
		inner := filepath.Join(top, "d")
		if _, err := os.Lstat(inner); err != nil {
			_ = os.Remove(top)
			return
		}
		if err := os.Rename(inner, top+".inner"); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(top); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(top+".inner", top); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNotRoot(t *testing.T) {
	f := newFixture(t)
	f.become(64123)
	f.candidate(member{name: "tool", kind: tar.TypeReg, mode: 0o755, content: "#!/bin/sh\nid -u"})
	if got := f.phases(phase("main", nil, f.path("workspace/tool"))).run(); got.code != outcome.CodeDone || f.read("output/stdout") != "64123\n" {
		t.Errorf("got %+v, %q", got.message, f.read("output/stdout"))
	}
}
