package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/outcome"
)

const (
	allRights = ",+setuid,+setgid,+chown,+dac_override,+fowner"

	// userAndRights is what a script says of itself, and what it finds of an artifact.
	userAndRights = `while read -r key real rest; do
  case $key in Uid:) uid=$real ;; CapPrm:) permitted=$real ;; CapEff:) echo "$uid $permitted $real" ;; esac; done < /proc/self/status; cat /data/out/x`
)

// TestWhoIsToBlameForArtifactsThatCannotBePut: the folder of the artifact belongs to another user of the verifier's image.
func TestWhoIsToBlameForArtifactsThatCannotBePut(t *testing.T) {
	folder, folderDigest, _ := agentLeaves(t, `mkdir -p /data/out; echo mine > /data/out/x`, source("/data/out"))
	file, fileDigest, _ := agentLeaves(t, `mkdir -p /data; echo mine > /data/out`, source("/data/out"))
	damaged := []byte(strings.Repeat("no archive", 200))
	damagedDigest := fmt.Sprintf("sha256:%x", sha256.Sum256(damaged))
	const none = "0000000000000000"
	for name, test := range map[string]struct {
		sealed       []byte
		digest       string
		rights, user string
		owner        int // of the folder in the verifier's image
		code         int
		phase        string
		said         string // by the script, or in the error
	}{
		"root with rights":              {folder, folderDigest, allRights, "", 1000, 0, "main", "0 " + none + " " + none + "\nmine"},
		"a user and root with rights":   {folder, folderDigest, allRights, "app", 77, 0, "main", "1000 " + none + " " + none + "\nmine"},
		"root of the image":             {folder, folderDigest, "", "", 0, 0, "main", "0 " + none + " " + none + "\nmine"},
		"root without rights":           {folder, folderDigest, "", "", 1000, outcome.CodeUnfit, "rights", "user 0 of the verifier's container may not write /data/out"},
		"a file where none may be made": {file, fileDigest, "", "", 1000, outcome.CodeStaging, outcome.PhaseCandidate, "data/out is not the folder that it replaces"},
		"a damaged archive":             {damaged, damagedDigest, "", "", 0, outcome.CodeStaging, outcome.PhaseCandidate, "candidate: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := asUser(t, test.user, userAndRights)
			c.keeps = test.rights
			place := filepath.Join(c.folder, "upper/data/out")
			must(t, os.MkdirAll(place, 0o755))
			must(t, os.WriteFile(filepath.Join(place, "old"), nil, 0o644))
			for _, each := range []string{place, filepath.Dir(place)} {
				must(t, os.Chown(each, test.owner, test.owner))
			}
			must(t, os.WriteFile(filepath.Join(c.folder, "candidate", "root.tar"), test.sealed, 0o644))
			c.spec["verdict"] = true
			c.spec["changes"] = map[string]any{
				"path": "/mounted/candidate/root.tar", "digest": test.digest, "excluded": ours, "tools": []string{"bash"}, "replaces": true,
			}
			got := c.run()
			said := c.read("output/stdout")
			if test.code != 0 {
				said = got.message.Error
			}
			if got.code != test.code || got.message.Phase != test.phase || !strings.Contains(said, test.said) {
				t.Errorf("%q, %+v: %s", said, got.message, c.read("output/stderr"))
			}
		})
	}
}

// TestAVerifierThatMayNotHaveTheRightsOfTheAgentsUser is the task's fault: it does not run as root.
func TestAVerifierThatMayNotHaveTheRightsOfTheAgentsUser(t *testing.T) {
	sealed, digest, _ := agentWorks(t, `echo x > /app/x`)
	c := asUser(t, "", "true")
	c.keeps = ""
	must(t, os.WriteFile(filepath.Join(c.folder, "candidate", "root.tar"), sealed, 0o644))
	c.spec["changes"] = map[string]any{
		"path": "/mounted/candidate/root.tar", "digest": digest, "excluded": ours, "tools": []string{"bash"}, "user": "app",
	}
	if got := c.run(); got.code != outcome.CodeUnfit || got.message.Phase != "rights" || !strings.Contains(got.message.Error, "let the verifier run as root") {
		t.Errorf("%+v", got.message)
	}
}
