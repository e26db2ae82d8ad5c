package courier

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// opening calls change before an entry is opened for the given time; its number counts from 1.
func opening(t *testing.T, name string, number int, change func()) {
	t.Helper()
	replace(t, &untrusted.Openat2, func(real func(int, string, *unix.OpenHow) (int, error)) func(int, string, *unix.OpenHow) (int, error) {
		return func(folder int, opened string, how *unix.OpenHow) (int, error) {
			if opened == name {
				if number--; number == 0 {
					change()
				}
			}
			return real(folder, opened, how)
		}
	})
}

func TestAFileThatChangesIsInvalid(t *testing.T) {
	for _, content := range []string{"longer", "x"} {
		in := couriersVolumes(t)
		writeAt(t, in("workspace/file"), "four")
		opening(t, "file", 1, func() { writeAt(t, in("workspace/file"), content) })
		_, message, _ := sealing(t, sealSpec(testTree))
		if message.Problem != untrusted.ProblemInvalid || message.Message != "a file changed while it was read" {
			t.Errorf("%+v", message)
		}
		if left, _ := os.ReadDir(in("candidate")); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
}

func TestAnEntryThatChangesWhileItIsOpenedIsRefused(t *testing.T) {
	for _, name := range []string{"out", "answer.txt"} {
		in := couriersVolumes(t)
		writeAt(t, in("workspace/out/answer.txt"), "x")
		must(t, unix.Mkfifo(in("fifo"), 0o644))
		opening(t, name, 1, func() {
			must(t, os.Rename(in("workspace/out"), in("moved")))
			must(t, os.Symlink(in("moved"), in("workspace/out")))
			must(t, os.Rename(in("fifo"), in("moved/answer.txt")))
		})
		if _, message, _ := sealing(t, sealSpec(testFile)); message.Problem == "" {
			t.Errorf("%+v", message)
		}
		if left, _ := os.ReadDir(in("candidate")); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
}

func secretTree(t *testing.T) func(...string) string {
	in := couriersVolumes(t)
	writeAt(t, in("outside/secret"), "four")
	writeAt(t, in("workspace/folder/secret"), "mine")
	writeAt(t, in("workspace/file"), "mine")
	return in
}

func TestAFileThatBecomesALinkIsNeverFollowed(t *testing.T) {
	in := secretTree(t)
	// The second time that the root is opened, the tree has been measured.
	opening(t, ".", 2, func() {
		must(t, os.Remove(in("workspace/file")))
		must(t, os.Symlink(in("outside/secret"), in("workspace/file")))
		must(t, os.Rename(in("workspace/folder"), in("moved")))
		must(t, os.Symlink(in("outside"), in("workspace/folder")))
	})
	notFollowed(t, in, 0)
}

func TestWhatChangesBeforeItIsOpenedIsNeverFollowed(t *testing.T) {
	for name, test := range map[string]struct {
		target  string
		dropped int
	}{"file": {"outside/secret", 1}, "folder": {"outside", 0}} {
		in := secretTree(t)
		opening(t, name, 1, func() {
			must(t, os.Rename(in("workspace", name), in("moved")))
			must(t, os.Symlink(in(test.target), in("workspace", name)))
		})
		notFollowed(t, in, test.dropped)
	}
}

func notFollowed(t *testing.T, in func(...string) string, dropped int) {
	t.Helper()
	_, message, _ := sealing(t, sealSpec(testTree))
	if message.Problem != "" || message.Dropped != dropped {
		t.Errorf("%+v", message)
	}
	archive, err := os.ReadFile(in("candidate/workspace.tar"))
	must(t, err)
	if strings.Contains(string(archive), "four") {
		t.Error("the secret crossed")
	}
}

func TestAWorkspaceThatGrowsMeanwhileIsBounded(t *testing.T) {
	in := couriersVolumes(t)
	writeAt(t, in("workspace/file"), "x")
	opening(t, ".", 2, func() { writeAt(t, in("workspace/file"), strings.Repeat("x", 10_001)) })
	if _, message, _ := sealing(t, sealSpec(testTree)); message.Problem != untrusted.ProblemTooLarge {
		t.Errorf("%+v", message)
	}
	if left, _ := os.ReadDir(in("candidate")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestCountingStopsAtTheBound(t *testing.T) {
	in := couriersVolumes(t)
	for number := range 3000 {
		writeAt(t, filepath.Join(in("workspace"), strings.Repeat("n", number%200+1)+string(rune('a'+number/200))), "")
	}
	batches := 0
	replace(t, &untrusted.ReadNames, func(real func(*os.File, int) ([]string, error)) func(*os.File, int) ([]string, error) {
		return func(folder *os.File, count int) ([]string, error) {
			batches++
			return real(folder, count)
		}
	})
	if _, message, _ := sealing(t, sealSpec(testTree)); message.Message != "the workspace has more than 20 entries" {
		t.Errorf("%+v", message)
	}
	if batches != 1 {
		t.Errorf("%d times a part of the folder was read", batches)
	}
}

// TestEntriesThatAreSwappedWithoutAPause: a file and a folder turn into links and back all the time.
func TestEntriesThatAreSwappedWithoutAPause(t *testing.T) {
	in := couriersVolumes(t)
	writeAt(t, in("outside/answer.txt"), "secret")
	writeAt(t, in("workspace/out/answer.txt"), "mine")
	must(t, os.Symlink(in("outside/answer.txt"), in("workspace/out/answer.evil")))
	must(t, os.Symlink(in("outside"), in("workspace/evil")))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				swap(in("workspace/out/answer.txt"), in("workspace/out/answer.evil"))
				swap(in("workspace/out"), in("workspace/evil"))
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	root, err := untrusted.OpenFolder(in("workspace"))
	must(t, err)
	defer root.Close()
	taken, refused := 0, 0
	// The swapping may be kept from running in the middle of it for as long as thousands of reads take.
	for begun := time.Now(); taken+refused < 10_000 || min(taken, refused) < 100 && time.Since(begun) < time.Minute; {
		content, err := untrusted.ReadRegular(root, "out/answer.txt", 1000)
		if err != nil {
			refused++
		} else if taken++; string(content) != "mine" {
			t.Fatalf("%q was read", content)
		}
	}
	if min(taken, refused) < 100 {
		t.Errorf("%d taken, %d refused", taken, refused)
	}
	for range 1000 {
		var archive bytes.Buffer
		made := bundle.New(&archive)
		_, err := packWorkspace(root, made, specs.CandidateBounds{WorkspaceBytes: 1 << 20, WorkspaceFiles: 100}, nil, untrusted.Modes{})
		if err == nil && strings.Contains(archive.String(), "secret") {
			t.Fatal("the secret crossed")
		}
	}
}

func swap(first, second string) {
	_ = unix.Renameat2(unix.AT_FDCWD, first, unix.AT_FDCWD, second, unix.RENAME_EXCHANGE)
}

func TestDescriptorsAreReleased(t *testing.T) {
	in := couriersVolumes(t)
	must(t, os.MkdirAll(in("workspace", strings.Repeat("d/", 50)), 0o755))
	writeAt(t, in("output/stdout"), "x")
	bounded := strings.Replace(sealSpec(testTree), `"workspace_files":20`, `"workspace_files":100`, 1)
	for _, spec := range []string{bounded, sealSpec(testTree), sealSpec(testFile)} {
		before := descriptors(t)
		sealing(t, spec)
		if after := descriptors(t); after != before {
			t.Errorf("%d descriptors became %d", before, after)
		}
		must(t, os.Remove(in("producer/sealed.json")))
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
