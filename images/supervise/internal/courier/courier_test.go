package courier

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

const (
	testLimits = `{"text_bytes":100,"patch_bytes":200,"workspace_bytes":10000,"workspace_files":20,"stream_bytes":10}`
	testFile   = `{"mode":"file","path":"out/answer.txt","kind":"text"}`
	testTree   = `{"mode":"workspace","path":null,"kind":"workspace"}`
)

func sealSpec(extraction string) string {
	return `{"version":1,"limits":` + testLimits + `,"seal":{"extraction":` + extraction + `,"limit_bytes":100,"exclude":["securebench"]}}`
}

// couriersVolumes makes volumes of a test's own and returns a function that names what lies there.
func couriersVolumes(t *testing.T) func(...string) string {
	t.Helper()
	before := volumes
	volumes = t.TempDir()
	t.Cleanup(func() { volumes = before })
	in := func(names ...string) string { return filepath.Join(append([]string{volumes}, names...)...) }
	for _, name := range []string{"workspace/out", "output", "candidate", "producer", "verification"} {
		must(t, os.MkdirAll(in(name), 0o755))
	}
	return in
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeAt(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(content), 0o644))
}

type said struct {
	Problem string `json:"problem"`
	Message string `json:"message"`
	File    string `json:"file"`
	Dropped int    `json:"dropped_entries"`
}

// took is what the courier of a test took.
var took = outcome.Usage{MemoryPeakBytes: 5000, CPUPeriods: 30, CPUThrottled: 4}

// sealing seals and returns the exit code and the message.
func sealing(t *testing.T, spec string) (int, said, string) {
	t.Helper()
	task, err := newJob(spec)
	must(t, err)
	log := filepath.Join(t.TempDir(), "log")
	code := task.conclude(log, func() outcome.Usage { return took })
	text, _ := os.ReadFile(log)
	var message said
	_ = json.Unmarshal(text, &message)
	return code, message, string(text)
}

func TestOddSpecifications(t *testing.T) {
	collect := `{"version":1,"limits":` + testLimits + `}`
	for _, spec := range []string{collect, sealSpec(testTree), strings.Replace(sealSpec(testFile), `"extraction"`, `"live":true,"extraction"`, 1)} {
		if _, err := specs.Read[specs.Courier](spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
	change := func(old, by string) string { return strings.Replace(collect, old, by, 1) }
	for name, spec := range map[string]string{
		"nothing": "", "a list": "[]", "null": "null", "trailing bytes": collect + " x",
		"a duplicate key": change(`"limits"`, `"version":1,"limits"`), "version 2": change(":1", ":2"),
		"version true": change(":1", ":true"), "no version": change(`"version":1,`, ""),
		"another case": change("limits", "Limits"), "no number": change(":10}", ":NaN}"),
		"a negative bound": change(":10}", ":-1}"), "a broken bound": change(":10}", ":1.5}"),
		"a bound too few": change(`"text_bytes":100,`, ""), "an unknown bound": change("text_bytes", "more_bytes"),
		"limits as a list": change(testLimits, "[]"), "limits as null": change(testLimits, "null"),
		"an extraction to collect": change("}}", `},"extraction":`+testTree+"}"),
		"folders while sealing":    strings.Replace(sealSpec(testTree), `"seal"`, `"folders":["a"],"seal"`, 1),
		"live without sealing":     change("}}", `},"live":true}`),
		"live as a number":         strings.Replace(sealSpec(testTree), `"exclude"`, `"live":1,"exclude"`, 1),
		"an unknown field":         strings.Replace(sealSpec(testTree), `"exclude"`, `"extra":1,"exclude"`, 1),
		"nothing excluded":         strings.Replace(sealSpec(testTree), `,"exclude":["securebench"]`, "", 1),
		"an unclean exclusion":     strings.Replace(sealSpec(testTree), `["securebench"]`, `["a//b"]`, 1),
		"exclusions as text":       strings.Replace(sealSpec(testTree), `["securebench"]`, `"securebench"`, 1),
		"half a character":         strings.Replace(sealSpec(testTree), `["securebench"]`, `["\\\ud83dx"]`, 1),
		"an unknown extraction":    sealSpec(strings.Replace(testFile, `"file"`, `"guess"`, 1)),
		"no kind":                  sealSpec(strings.Replace(testFile, `,"kind":"text"`, "", 1)),
		"no bound":                 strings.Replace(sealSpec(testFile), `"limit_bytes":100,`, "", 1),
		"a file without path":      sealSpec(strings.Replace(testFile, `"out/answer.txt"`, "null", 1)),
		"no path at all":           sealSpec(strings.Replace(testFile, `"path":"out/answer.txt",`, "", 1)),
		"a step up":                sealSpec(strings.Replace(testFile, "out/", "../", 1)),
		"an absolute path":         sealSpec(strings.Replace(testFile, "out/", "/", 1)),
	} {
		if _, err := specs.Read[specs.Courier](spec); err == nil {
			t.Errorf("%s is accepted: %s", name, spec)
		}
	}
}

// replace has a system call fail, or do something first, until the end of the test.
func replace[T any](t *testing.T, call *T, by func(real T) T) {
	t.Helper()
	real := *call
	*call = by(real)
	t.Cleanup(func() { *call = real })
}

func TestADiskThatFailsIsNotTheAgents(t *testing.T) {
	for name, fail := range map[string]func(*testing.T){
		"No space left on device": func(t *testing.T) {
			replace(t, &untrusted.Fsync, func(func(int) error) func(int) error { return func(int) error { return unix.ENOSPC } })
		},
		"Input/output error": func(t *testing.T) {
			replace(t, &untrusted.ReadNames, func(func(*os.File, int) ([]string, error)) func(*os.File, int) ([]string, error) {
				return func(*os.File, int) ([]string, error) { return nil, os.NewSyscallError("readdirent", unix.EIO) }
			})
		},
		"Stale file handle": func(t *testing.T) {
			replace(t, &untrusted.Readlinkat, func(func(int, string, []byte) (int, error)) func(int, string, []byte) (int, error) {
				return func(int, string, []byte) (int, error) { return 0, unix.ESTALE }
			})
		},
		"Read-only file system": func(t *testing.T) {
			replace(t, &untrusted.Fstatat, func(func(int, string, *unix.Stat_t, int) error) func(int, string, *unix.Stat_t, int) error {
				return func(int, string, *unix.Stat_t, int) error { return unix.EROFS }
			})
		},
		"Disk quota exceeded":           func(t *testing.T) { failToOpen(t, "out", unix.EDQUOT) },
		"Too many open files in system": func(t *testing.T) { failToOpen(t, "out", unix.ENFILE) },
		"Cannot allocate memory":        func(t *testing.T) { failToOpen(t, "out", unix.ENOMEM) },
	} {
		t.Run(name, func(t *testing.T) {
			in := couriersVolumes(t)
			must(t, os.Symlink("x", in("workspace/link")))
			fail(t)
			if code, _, text := sealing(t, sealSpec(testTree)); code != outcome.CodeStorage || text != name {
				t.Errorf("%d, %s", code, text)
			}
		})
	}
}

func failToOpen(t *testing.T, name string, errno unix.Errno) {
	replace(t, &untrusted.Openat2, func(real func(int, string, *unix.OpenHow) (int, error)) func(int, string, *unix.OpenHow) (int, error) {
		return func(folder int, opened string, how *unix.OpenHow) (int, error) {
			if opened == name {
				return -1, errno
			}
			return real(folder, opened, how)
		}
	})
}

func TestEveryOtherErrorEndsTheCourier(t *testing.T) {
	couriersVolumes(t)
	replace(t, &untrusted.Fsync, func(func(int) error) func(int) error { return func(int) error { return unix.EPERM } })
	if code, _, text := sealing(t, sealSpec(testTree)); code != outcome.CodeFailed || text != "" {
		t.Errorf("%d, %s", code, text)
	}
}

func TestWhatCannotBeOpenedIsDroppedOrInvalid(t *testing.T) {
	in := couriersVolumes(t)
	writeAt(t, in("workspace/out/answer.txt"), "x")
	writeAt(t, in("workspace/kept"), "x")
	failToOpen(t, "answer.txt", unix.EACCES)
	if _, message, _ := sealing(t, sealSpec(testTree)); message.Problem != "" || message.Dropped != 1 {
		t.Errorf("%+v", message)
	}
	must(t, os.Remove(in("producer/sealed.json")))
	_, message, _ := sealing(t, sealSpec(testFile))
	if message.Problem != untrusted.ProblemInvalid || message.Message != "out/answer.txt cannot be read: Permission denied" {
		t.Errorf("%+v", message)
	}
	must(t, os.Remove(in("producer/sealed.json")))
	failToOpen(t, "out", unix.EACCES)
	if _, message, _ := sealing(t, sealSpec(testTree)); message.Problem != "" || message.Dropped != 1 {
		t.Errorf("%+v", message)
	}
}

// TestOpeningKeepsToTheFolder: also on a kernel without openat2, or where a sandbox forbids it.
func TestOpeningKeepsToTheFolder(t *testing.T) {
	for _, errno := range []unix.Errno{0, unix.ENOSYS, unix.EPERM} {
		t.Run(fmt.Sprint(errno), func(t *testing.T) {
			in := couriersVolumes(t)
			if errno != 0 {
				replace(t, &untrusted.Openat2, func(func(int, string, *unix.OpenHow) (int, error)) func(int, string, *unix.OpenHow) (int, error) {
					return func(int, string, *unix.OpenHow) (int, error) { return -1, errno }
				})
			}
			writeAt(t, in("outside/secret"), "secret")
			writeAt(t, in("workspace/out/answer.txt"), "mine")
			must(t, os.Symlink(in("outside/secret"), in("workspace/file")))
			must(t, os.Symlink(in("outside"), in("workspace/folder")))
			root, err := untrusted.OpenFolder(in("workspace"))
			must(t, err)
			defer root.Close()
			for name, flags := range map[string]int{"file": untrusted.FileFlags, "folder": untrusted.FolderFlags} {
				if file, err := untrusted.OpenBeneath(root, name, flags); err == nil {
					t.Errorf("%s leads to %s", name, file.Name())
				}
			}
			if _, message, _ := sealing(t, sealSpec(testFile)); message.File != textFile {
				t.Errorf("%+v", message)
			}
		})
	}
}

func TestTheCourierWorksUntilSigterm(t *testing.T) {
	told := make(chan os.Signal, 1)
	steps := 0
	waitForTerm(told, func() {
		if steps++; steps == 3 {
			told <- unix.SIGTERM
		}
	}, time.Millisecond)
	if steps != 3 {
		t.Error(steps)
	}
	told <- unix.SIGTERM
	waitForTerm(told, nil, time.Hour)
}

func TestALiveCopy(t *testing.T) {
	in := couriersVolumes(t)
	copied := func() string {
		text, _ := os.ReadFile(in("producer", "live-stdout"))
		return string(text)
	}
	live := newLiveCopy(in("output"), "stdout", in("producer"))
	live.step()
	for _, text := range []string{"one\n", "one\n", "one\ntwo\n"} {
		writeAt(t, in("output/stdout"), text)
		live.step()
	}
	if copied() != "one\ntwo\n" {
		t.Errorf("only what was added is copied: %q", copied())
	}
	writeAt(t, in("output/new"), "of the next command\n")
	must(t, os.Rename(in("output/new"), in("output/stdout")))
	live.step()
	if copied() != "one\ntwo\nof the next command\n" {
		t.Errorf("the next command follows: %q", copied())
	}
	live.left = 5
	for range 3 {
		file, err := os.OpenFile(in("output/stdout"), os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = file.WriteString("abcd")
		must(t, errors.Join(err, file.Close()))
		live.step()
	}
	if !strings.HasSuffix(copied(), "command\nabcda") {
		t.Errorf("the copy ends at its bound: %q", copied())
	}
}

func TestBothStreamsAreCopiedWhileTheAgentWorks(t *testing.T) {
	in := couriersVolumes(t)
	task, err := newJob(strings.Replace(sealSpec(testTree), `"extraction"`, `"live":true,"extraction"`, 1))
	must(t, err)
	for _, name := range outcome.StreamNames {
		writeAt(t, in("output", name), "of "+name+"\n")
	}
	task.meanwhile()()
	for _, name := range outcome.StreamNames {
		if text, _ := os.ReadFile(in("producer", "live-"+name)); string(text) != "of "+name+"\n" {
			t.Errorf("the copy of %s has %q", name, text)
		}
	}
}

func TestALiveCopyReadsRegularFilesOnly(t *testing.T) {
	for kind, make := range map[string]func(string) error{
		"link":   func(name string) error { return os.Symlink("../secret", name) },
		"fifo":   func(name string) error { return unix.Mkfifo(name, 0o644) },
		"folder": func(name string) error { return os.Mkdir(name, 0o755) },
	} {
		in := couriersVolumes(t)
		writeAt(t, in("secret"), "not the agent's")
		must(t, make(in("output/stdout")))
		newLiveCopy(in("output"), "stdout", in("producer")).step()
		if _, err := os.Lstat(in("producer", "live-stdout")); err == nil {
			t.Errorf("a %s is copied", kind)
		}
	}
}

func TestTroubleWithTheVolumeEndsALiveCopyOnly(t *testing.T) {
	in := couriersVolumes(t)
	writeAt(t, in("producer", "live-stdout"), "of a courier before\n")
	writeAt(t, in("output/stdout"), "one\n")
	live := newLiveCopy(in("output"), "stdout", in("producer"))
	live.step()
	must(t, os.Remove(in("producer", "live-stdout")))
	writeAt(t, in("output/stdout"), "one\ntwo\n")
	live.step()
	if _, err := os.Lstat(in("producer", "live-stdout")); err == nil {
		t.Error("the copying goes on")
	}
}

func TestAHalfCharacterAfterALineEndsNoLine(t *testing.T) {
	for text, want := range map[string]string{
		"\n\u00e9": "\n[securebench: 3 of 4 bytes omitted]\n", "a\n\u00e9": "a\n[securebench: 3 of 5 bytes omitted]\n",
		"\xed\xa0": "[securebench: 3 of 3 bytes omitted]\n",
	} {
		head := pieceOf(t, t.TempDir(), "head", []byte(text))
		var kept strings.Builder
		target := bufio.NewWriter(&kept)
		_, err := (&output{head: head, total: head.kept + 1}).writeText(target, 4)
		must(t, errors.Join(err, target.Flush()))
		if kept.String() != want {
			t.Errorf("%q", kept.String())
		}
	}
}

func TestFoldersAreMadeOnce(t *testing.T) {
	in := couriersVolumes(t)
	must(t, os.Mkdir(in("socket"), 0o777))
	spec := `{"version":1,"limits":` + testLimits + `,"folders":["socket/first","socket/tests"]}`
	task, err := newJob(spec)
	must(t, err)
	must(t, task.makeFolders())
	must(t, os.Remove(in("socket/first")))
	must(t, task.makeFolders())
	if _, err := os.Stat(in("socket/first")); !os.IsNotExist(err) {
		t.Error("what was taken away is there again")
	}
	if status, err := os.Stat(in("socket/tests")); err != nil || status.Mode() != os.ModeDir|0o755 {
		t.Errorf("got %v, %v", status, err)
	}
	for _, bad := range []string{`["../x"]`, `["/x"]`, `[""]`, `null`} {
		if _, err := newJob(strings.Replace(spec, `["socket/first","socket/tests"]`, bad, 1)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	task, err = newJob(strings.Replace(spec, "socket/first", "nowhere/first", 1))
	must(t, err)
	must(t, os.Remove(in("socket/tests")))
	if task.makeFolders() == nil {
		t.Error("a folder that cannot be made is no error")
	}
}

func TestTheMessageSaysWhatTheCourierTook(t *testing.T) {
	in := couriersVolumes(t)
	writeAt(t, in("output/stdout"), "printed\n")
	want := `,"memory_peak_bytes":5000,"cpu_periods":30,"cpu_throttled":4}`
	_, _, sealed := sealing(t, sealSpec(testTree))
	_, _, repeated := sealing(t, sealSpec(testTree))
	_, _, collected := sealing(t, `{"version":1,"limits":`+testLimits+`}`)
	for _, text := range []string{sealed, repeated, collected} {
		if !strings.HasSuffix(text, want) || strings.Count(text, "memory_peak_bytes") != 1 {
			t.Errorf("the message is %s", text)
		}
	}
	note, err := os.ReadFile(in("producer/sealed.json"))
	if err != nil || strings.Contains(string(note), "memory_peak_bytes") {
		t.Errorf("what is repeated by a later courier is %s, %v", note, err)
	}
}
