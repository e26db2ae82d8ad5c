package staging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/untrusted"
)

// TestWhereLinksLead: a tree with a workspace, an image beside it and mounts in it.
func TestWhereLinksLead(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(root, name) }
	for _, name := range []string{
		"app/sub/deep", "app/securebench/evaluation_inputs", "app/data", "usr/bin", "usr/lib/mounted", "tmp", "etc",
	} {
		if err := os.MkdirAll(in(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"app/file", "app/securebench/evaluation_inputs/answer", "app/data/in.csv", "usr/bin/python3", "usr/lib/mounted/x", "tmp/x",
	} {
		if err := os.WriteFile(in(name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	image := map[string]string{"usr/app": in("app"), "usr/self": "/proc/self", "usr/temporary": in("tmp"), "bin": "usr/bin"}
	workspace := map[string]string{"app/here": ".", "app/sub/up": "..", "app/loop": "pool", "app/pool": "loop", "app/bin": in("bin")}
	for _, links := range []map[string]string{image, workspace} {
		for name, target := range links {
			if err := os.Symlink(target, in(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const kept = ""
	mounts := []string{in("app/securebench"), in("app/securebench/evaluation_inputs"), in("app/data"), in("usr/lib/mounted"), in("tmp"), "/proc", "/dev"}
	mounts = slices.DeleteFunc(mounts, func(mount string) bool { return untrusted.IsBelow(root, mount) })
	for name, test := range map[string]struct{ at, target, want string }{
		"a neighbour":                       {"sub/l", "../file", kept},
		"absolute, in the workspace":        {"l", in("app/sub"), kept},
		"the workspace":                     {"l", in("app"), kept},
		"missing, in the workspace":         {"l", "later", kept},
		"missing, absolute":                 {"l", in("app/later/x"), kept},
		"itself":                            {"l", "l", kept},
		"a loop":                            {"l", "loop", kept},
		"a program of the image":            {"l", in("usr/bin/python3"), kept},
		"the same by a link of the image":   {"l", in("bin/python3"), kept},
		"the same by another link":          {"l", "bin/python3", kept},
		"the same, relative":                {"sub/deep/l", "../../../usr/bin/python3", kept},
		"a folder of the image":             {"l", in("usr/bin"), kept},
		"out and in again":                  {"l", "../app/file", kept},
		"a folder above a read-only asset":  {"l", "data/in.csv", kept},
		"up after a step down":              {"l", "sub/../file", kept},
		"through a file":                    {"l", "file/x", kept},
		"no device that holds anything":     {"l", "/dev/null", kept},
		"our folder":                        {"l", "securebench", lostFramework},
		"what our folder holds":             {"l", "securebench/evaluation_inputs/answer", lostFramework},
		"the same, absolute":                {"l", in("app/securebench/evaluation_inputs/answer"), lostFramework},
		"the same by the workspace":         {"l", "here/here/securebench/evaluation_inputs/answer", lostFramework},
		"the same by steps up":              {"sub/deep/l", "../up/sub/../securebench/evaluation_inputs/answer", lostFramework},
		"the same by the image, linked":     {"l", in("usr/app/securebench/evaluation_inputs/answer"), lostFramework},
		"the same, not there yet":           {"l", "securebench/later", lostFramework},
		"out by dots after it":              {"l", "securebench/../file", lostFramework},
		"our folders beside the workspace":  {"l", "/opt/securebench/evaluator/x", lostFramework},
		"what holds the workspace":          {"l", "..", lostFramework},
		"the root":                          {"l", "/", lostFramework},
		"by the root of a process":          {"l", "/proc/self/root" + in("app/file"), lostOutside},
		"by the image's link to a process":  {"l", in("usr/self/cwd"), lostOutside},
		"standard input":                    {"l", "/dev/fd/0", lostOutside},
		"null by the way of something else": {"l", "/dev/fd/../null", lostOutside},
		"temporary files":                   {"l", in("tmp/x"), lostOutside},
		"the same by the image's link":      {"l", in("usr/temporary/x"), lostOutside},
		"a folder that holds a mount":       {"l", in("usr/lib"), lostOutside},
		"missing, in the image":             {"l", in("usr/bin/later"), lostOutside},
		"missing, above the image":          {"l", "../later", lostOutside},
	} {
		t.Run(name, func(t *testing.T) {
			place := filepath.Join(in("app"), test.at)
			if err := os.Symlink(test.target, place); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(place)
			judge := &linkJudge{workspace: in("app"), mounts: mounts}
			if got := judge.judge(place); got != test.want {
				t.Errorf("%q: %q, want %q", test.target, got, test.want)
			}
		})
	}
}

func TestLinksOfOneCandidateTakeBoundedSteps(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink(strings.Repeat("./", 2000)+"l", filepath.Join(root, "l")); err != nil {
		t.Fatal(err)
	}
	judge := &linkJudge{workspace: root, steps: maxSteps - 1000}
	if got := judge.judge(filepath.Join(root, "l")); got != lostTangled {
		t.Errorf("%q", got)
	}
}

func TestTheTableOfMountsIsRead(t *testing.T) {
	judge, err := newLinkJudge(t.TempDir())
	if err != nil || !slices.Contains(judge.mounts, "/proc") || slices.Contains(judge.mounts, "/") {
		t.Errorf("%v, %v", judge, err)
	}
}

// TestLinksAreJudgedBeforeAnyGoes: else what leads through a refused link would lead nowhere.
func TestLinksAreJudgedBeforeAnyGoes(t *testing.T) {
	target, err := openPlace(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range [][2]string{{"a", "securebench"}, {"b", "a/x"}, {"c", "d"}} {
		if err := target.putLink(link[0], link[1], entryState{}); err != nil {
			t.Fatal(err)
		}
	}
	var losses outcome.Losses
	judge := &linkJudge{workspace: target.path}
	if err := target.judgeLinks(judge, &losses); err != nil || losses.Entries != 2 || len(losses.Named) != 2 {
		t.Errorf("%+v, %v", losses, err)
	}
	if names, err := os.ReadDir(target.path); err != nil || len(names) != 1 || names[0].Name() != "c" {
		t.Errorf("%v, %v", names, err)
	}
}
