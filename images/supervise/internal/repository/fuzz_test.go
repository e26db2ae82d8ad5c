package repository

import (
	"testing"

	"securebench.dev/supervise/internal/specs"
)

// FuzzDecodeOthers: the other specifications and lists are read or refused.
func FuzzDecodeOthers(f *testing.F) {
	f.Add(`{"version":1,"from":"/a","to":"/b"}`)
	f.Add(`["a","b"]`)
	f.Fuzz(func(t *testing.T, text string) {
		var copied specs.Copy
		_ = specs.Decode(text, &copied)
		_, _ = decodeDeclared([]byte(text))
	})
}
