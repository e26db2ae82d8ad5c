package rootfs

import (
	"strings"
	"testing"

	"securebench.dev/supervise/internal/specs"
)

// TestPatternsMeanWhatTarMakesOfThem: each list is what GNU tar leaves of these members with --exclude.
func TestPatternsMeanWhatTarMakesOfThem(t *testing.T) {
	members := []string{"a.txt", "a", "a/b", "a/b/c.tmp", "deep", "deep/cache", "deep/cache/c", "deep/x.pyc", "w1", "w[1]", "é.txt"}
	for pattern, gone := range map[string]string{
		"*.pyc":   "deep/x.pyc",
		"cache":   "deep/cache deep/cache/c",
		"./a":     "a a/b a/b/c.tmp",
		"a":       "a a/b a/b/c.tmp",
		"a/b":     "a/b a/b/c.tmp",
		"deep/*":  "deep/cache deep/cache/c deep/x.pyc",
		"?.txt":   "a.txt é.txt",
		"w[1]":    "w1",
		`w\[1\]`:  "w[1]",
		"deep/":   "",
		"src":     "",
		"[":       "",
		".":       strings.Join(members, " "),
		"*":       strings.Join(members, " "),
		"./*.txt": "a.txt é.txt",
		"[!a]*":   strings.Join(members, " "),
	} {
		spec := specs.Root{Artifacts: []specs.Artifact{{Source: "src", Exclude: []string{pattern}}}}
		kept := NewArtifacts("/", "/work", spec, nil)
		var left []string
		for _, member := range members {
			if !kept.holds("work/src/" + member) {
				left = append(left, member)
			}
		}
		if got := strings.Join(left, " "); got != gone {
			t.Errorf("%q leaves out %q, not %q", pattern, got, gone)
		}
	}
}
