package staging

import (
	"os"
	"testing"
)

func TestModeOfAnotherUsersFolderIsLeftAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a folder away")
	}
	for _, each := range []struct {
		name string
		user int
		want os.FileMode
	}{{"own", 0, 0o755}, {"foreign", 65532, 0o777}} {
		t.Run(each.name, func(t *testing.T) {
			path := t.TempDir()
			if err := os.Chmod(path, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, each.user, each.user); err != nil {
				t.Fatal(err)
			}
			folder, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			if err := setState(folder, entryState{mode: 0o755}); err != nil {
				t.Fatal(err)
			}
			status, err := folder.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if got := status.Mode().Perm(); got != each.want {
				t.Errorf("mode %o, want %o", got, each.want)
			}
		})
	}
}
