package main

import (
	"os"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

// aPlaceForAll is a folder like an emptyDir of the kubelet, which is root's.
func aPlaceForAll(t *testing.T) *fixture {
	f := newFixture(t)
	if err := os.Mkdir(f.path("tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.path("tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	f.spec["temporary"] = f.path("tmp")
	return f.phases(shell("stat -c %a \"" + f.path("tmp") + "\"; stat -c %a:%u \"$TMPDIR\" 2>/dev/null; echo \"${TMPDIR-none}\""))
}

func TestTemporaryFolderOfRootIsSticky(t *testing.T) {
	f := aPlaceForAll(t)
	if got := f.run(); got.code != outcome.CodeDone || f.read("output/stdout") != "1777\nnone\n" {
		t.Errorf("got %+v, %q", got.message, f.read("output/stdout"))
	}
}

func TestAnotherUserGetsATemporaryFolderOfItsOwn(t *testing.T) {
	f := aPlaceForAll(t)
	f.become(64123)
	want := "777\n700:64123\n" + f.path("tmp/securebench-own") + "\n"
	if got := f.run(); got.code != outcome.CodeDone || f.read("output/stdout") != want {
		t.Errorf("got %+v, %q", got.message, f.read("output/stdout"))
	}
}

func TestTheImagesOwnTemporaryFolderStays(t *testing.T) {
	f := aPlaceForAll(t)
	t.Setenv("TMPDIR", "/somewhere")
	f.become(64123)
	if got := f.run(); got.code != outcome.CodeDone || f.read("output/stdout") != "777\n/somewhere\n" {
		t.Errorf("got %+v, %q", got.message, f.read("output/stdout"))
	}
}

func TestNoTemporaryFolderIsAFailureOfStaging(t *testing.T) {
	f := aPlaceForAll(t)
	f.spec["temporary"] = f.path("nowhere")
	if got := f.run(); got.code != outcome.CodeStaging {
		t.Errorf("got %+v", got.message)
	}
}
