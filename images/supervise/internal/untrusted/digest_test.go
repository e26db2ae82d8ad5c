package untrusted

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTreeDigest(t *testing.T) {
	lane := t.TempDir()
	for name, content := range map[string]string{"a/b": "1", "a.b": "2", "a-b/\xff\n": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(lane, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lane, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	text := "a-b/\xff\n\x00" + sum("") + "\na.b\x00" + sum("2") + "\na/b\x00" + sum("1") + "\n"
	got, err := TreeDigest(lane)
	if want := "sha256:" + sum(text); err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if err := os.Symlink("a.b", filepath.Join(lane, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := TreeDigest(lane); err == nil {
		t.Error("a link in a lane is accepted")
	}
}
