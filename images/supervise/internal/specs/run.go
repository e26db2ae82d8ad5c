package specs

import (
	"errors"
	"fmt"
	"strings"

	"securebench.dev/supervise/internal/outcome"
)

const (
	maxPhases    = outcome.CodeStaging - outcome.CodePhase // 64 + n stays below the codes of our own
	maxPhaseName = 64
	maxKeptBytes = 64 << 20 // per stream and part: all of it is held in memory

	// MaxPatchFile bounds every file that is read into memory: lanes and candidates are smaller.
	MaxPatchFile = 256 << 20
)

func (s *Run) validate() error {
	if len(s.Phases) == 0 || len(s.Phases) > maxPhases {
		return fmt.Errorf("%d phases, 1 to %d are possible", len(s.Phases), maxPhases)
	}
	for _, phases := range [][]Phase{s.Prechecks, s.Phases} {
		for index := range phases {
			if err := phases[index].validate(); err != nil {
				return err
			}
		}
	}
	streams := s.Streams
	if max(streams.HeadBytes, streams.TailBytes) > maxKeptBytes {
		return fmt.Errorf("streams keep 0 to %d bytes", maxKeptBytes)
	}
	if (s.Needs == "") != (s.NeedsSeconds == 0) {
		return errors.New("needs and needs_seconds, a time above 0, go together")
	}
	if s.Repository != nil && (len(s.Phases) != 1 || !s.Verdict || s.Repository.TimeoutSeconds <= 0) {
		return errors.New("a repository needs one phase, a verdict and a time limit")
	}
	if s.Reward != nil && (s.Streams.Folder == "" || len(s.Reward.Files) == 0) {
		return errors.New("a reward needs a folder for it and the names of its files")
	}
	if s.Diff != nil && (s.Streams.Folder == "" || s.Diff.TimeoutSeconds <= 0 || s.Diff.Bytes >= MaxPatchFile) {
		return errors.New("a diff needs a folder for it, a time limit and a bound")
	}
	if s.Root != nil && (s.Streams.Folder == "" || s.Diff != nil || s.Repository != nil) {
		return errors.New("changes of the root file system need a folder for them, and are all that is kept")
	}
	if s.Changes != nil && s.Candidate != nil {
		return errors.New("a candidate is a workspace or changes of a root file system")
	}
	return nil
}

func (p *Phase) validate() error {
	if p.Name == "" || len(p.Name) > maxPhaseName {
		return fmt.Errorf("a phase needs a name of at most %d bytes", maxPhaseName)
	}
	if len(p.Command) == 0 || p.Command[0] == "" {
		return fmt.Errorf("phase %s has no command", p.Name)
	}
	if p.TimeoutSeconds != nil && *p.TimeoutSeconds <= 0 {
		return fmt.Errorf("time limit of phase %s is not above 0", p.Name)
	}
	for name, value := range p.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("phase %s has an impossible variable %q", p.Name, name)
		}
	}
	for _, word := range append([]string{p.Workdir}, p.Command...) {
		if strings.Contains(word, "\x00") {
			return fmt.Errorf("phase %s has a NUL byte in its command", p.Name)
		}
	}
	return nil
}
