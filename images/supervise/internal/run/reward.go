package run

import (
	"encoding/json"
	"errors"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// reward is what a script left, as the operator reads it.
type reward struct {
	V       int    `json:"v"`
	Name    string `json:"name"`
	Problem string `json:"problem"`
	Message string `json:"message"`
	Content []byte `json:"content"`
}

// keepReward copies the first of the files that is there beside the streams, when no process is left that
// could change it. Whatever commands put in the place of the copy is replaced.
func keepReward(spec specs.Reward, folders keptFolders) error {
	found := reward{V: 1, Content: []byte{}}
	for _, name := range spec.Files {
		content, err := untrusted.ReadRegular(folders.reward, name, spec.Bytes)
		var refused *untrusted.UnreadableError
		switch {
		case err == nil:
			found = reward{V: 1, Name: name, Content: content}
		case errors.As(err, &refused):
			found.Name, found.Problem, found.Message = name, refused.Problem, refused.Text
		default:
			return err
		}
		if found.Problem != untrusted.ProblemMissing {
			break
		}
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	untrusted.OpenFolderMode(folders.streams)
	return untrusted.ReplaceFileAt(folders.streams, outcome.RewardFile, text)
}
