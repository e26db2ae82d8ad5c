package untrusted

import (
	"fmt"
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
