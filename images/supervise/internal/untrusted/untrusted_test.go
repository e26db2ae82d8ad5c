package untrusted

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

func TestWhatTheNodeLacksIsNotTheCandidates(t *testing.T) {
	for _, lack := range nodeErrors {
		if got := outcome.Failure(outcome.CodeStaging, OfCandidate(fmt.Errorf("unpack: %w", lack))); got.Phase != "" {
			t.Errorf("%v: got %+v", lack, got)
		}
	}
	if got := outcome.Failure(outcome.CodeStaging, OfCandidate(syscall.ENAMETOOLONG)); got.Phase != outcome.PhaseCandidate {
		t.Errorf("got %+v", got)
	}
	if err := OfCandidate(nil); err != nil {
		t.Error(err)
	}
}

func TestMountPointsHaveTheirNames(t *testing.T) {
	if got := mountPoint(`/a\040b\134040`); got != `/a b\040` {
		t.Errorf("%q", got)
	}
	if mounts, err := MountPoints(); err != nil || !slices.Contains(mounts, "/proc") {
		t.Errorf("%v, %v", mounts, err)
	}
}
