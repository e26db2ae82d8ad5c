package specs

import "errors"

// Where the candidate comes from (ExtractionMode in operator/securebench/protocol/candidate.py).
const (
	FromStdout  = "stdout"
	FromFile    = "file"
	FromDiff    = "git_diff"
	FromTree    = "workspace"
	FromRoot    = "root_diff"
	FromNothing = "unsupported"
)

func (s *Courier) validate() error {
	if s.Seal == nil {
		return nil
	}
	if len(s.Folders) > 0 {
		return errors.New("folders are for a courier that seals nothing")
	}
	if from := s.Seal.Extraction; (from.Mode == FromFile) != (from.Path != nil) {
		return errors.New("a path is for a file that is taken")
	}
	return nil
}
