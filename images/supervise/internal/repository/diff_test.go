package repository

import (
	"encoding/json"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/process"
)

func TestTheWorstWordsOfGitFitIntoTheMessage(t *testing.T) {
	for name, said := range map[string]string{"escaped": "\x01", "not UTF-8": "\xff", "cut in a character": "aü"} {
		t.Run(name, func(t *testing.T) {
			w := Worktree{git: &trustedGit{heard: process.Capture{HeadLimit: DiffStderrBytes}}}
			w.git.heard.Add([]byte(strings.Repeat(said, 10000)))
			stderr := w.stderr(nil)
			encoded := outcome.Message{V: 1, Commit: strings.Repeat("a", 64), Error: strings.Repeat("e", outcome.MessageBytes), Diff: &outcome.DiffReport{Stderr: stderr}}.Encode()
			var back outcome.Message
			if err := json.Unmarshal(encoded, &back); err != nil || len(encoded) > outcome.MessageBytes || back.Diff.Stderr != stderr || back.Error == "" {
				t.Errorf("%d bytes, %v: %s", len(encoded), err, encoded)
			}
		})
	}
}
