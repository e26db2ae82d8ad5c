package repository

import (
	"errors"
	"testing"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
)

func TestFailedStep(t *testing.T) {
	killed := process.Ending{ExitCode: 137, Signal: 9}
	late := process.Ending{ExitCode: 137, Signal: 9, TimedOut: true}
	cases := map[string]struct {
		err   error
		step  int
		code  int
		phase string
	}{
		"a patch that does not fit":   {&gitError{end: process.Ending{ExitCode: 1}}, StepCandidate, outcome.CodePhase + StepCandidate, "a step"},
		"killed before the candidate": {&gitError{end: killed}, StepTestAlone, outcome.CodeStaging, "a step"},
		"killed at the candidate":     {&gitError{end: killed}, StepCandidate, outcome.CodeStaging, outcome.PhaseCandidate},
		"killed after the candidate":  {&gitError{end: killed}, StepControl, outcome.CodeStaging, outcome.PhaseCandidate},
		"a disk that fails":           {&gitError{end: process.Ending{ExitCode: 128}, lacks: true}, StepTest, outcome.CodeStaging, outcome.PhaseCandidate},
		"late before the candidate":   {&gitError{end: late}, StepSetup, outcome.CodeStaging, "a step"},
		"late at the candidate":       {&gitError{end: late}, StepCandidate, outcome.CodeTimeout, "a step"},
		"late after the candidate":    {&gitError{end: late}, StepTest, outcome.CodeTimeout, "a step"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var failed *StepError
			if !errors.As(failedStep(test.err, "a step", test.step), &failed) {
				t.Fatal("no end of a step")
			}
			if failed.code != test.code || failed.phase != test.phase {
				t.Errorf("got code %d, phase %q", failed.code, failed.phase)
			}
		})
	}
	other := errors.New("no memory file")
	if got := failedStep(other, "a step", StepCandidate); !errors.Is(got, other) {
		t.Errorf("got %v", got)
	}
}

func TestWordsOfNodes(t *testing.T) {
	for text, want := range map[string]bool{
		"error: unable to write file 'a': No space left on device": true,
		"fatal: write error: I/O error":                            true,
		"error: hello: patch does not apply":                       false,
		"error: corrupt patch at line 5":                           false,
	} {
		if got := nodeWords.MatchString(text); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
