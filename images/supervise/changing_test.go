package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// opening calls change before an entry is opened for the given time; its number counts from 1.
func opening(t *testing.T, name string, number int, change func()) {
	t.Helper()
	replace(t, &openat2, func(real func(int, string, *unix.OpenHow) (int, error)) func(int, string, *unix.OpenHow) (int, error) {
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
		if message.Problem != problemInvalid || message.Message != "a file changed while it was read" {
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
	notFollowed(t, in, 2)
}

func TestWhatChangesBeforeItIsOpenedIsNeverFollowed(t *testing.T) {
	for name, target := range map[string]string{"file": "outside/secret", "folder": "outside"} {
		in := secretTree(t)
		opening(t, name, 1, func() {
			must(t, os.Rename(in("workspace", name), in("moved")))
			must(t, os.Symlink(in(target), in("workspace", name)))
		})
		notFollowed(t, in, 1)
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
	opening(t, ".", 2, func() { must(t, os.Truncate(in("workspace/file"), 1<<40)) })
	if _, message, _ := sealing(t, sealSpec(testTree)); message.Problem != problemTooLarge {
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
	replace(t, &readNames, func(real func(*os.File, int) ([]string, error)) func(*os.File, int) ([]string, error) {
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
