package rootfs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rootOf makes a root file system of files with their names as content.
func rootOf(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, name), []byte(name), 0o644))
	}
	return root
}

// written returns what Write left of the changes since, and whether it is an archive.
func written(t *testing.T, before *Snapshot, bounds Bounds) (string, bool) {
	t.Helper()
	folder := t.TempDir()
	output, err := untrusted.OpenFolder(folder)
	must(t, err)
	defer output.Close()
	// What a command wrote there itself is never taken for ours.
	must(t, os.MkdirAll(filepath.Join(folder, outcome.RootFile, "mine"), 0o755))
	must(t, os.Symlink("/etc/passwd", filepath.Join(folder, outcome.RootNote)))
	must(t, before.Write(output, bounds))
	note, err := os.ReadFile(filepath.Join(folder, outcome.RootNote))
	if err == nil {
		return string(note), false
	}
	archive, err := os.ReadFile(filepath.Join(folder, outcome.RootFile))
	must(t, err)
	return string(archive), true
}

func TestChangesBeyondABoundAreANote(t *testing.T) {
	const wide = 1 << 20
	for name, test := range map[string]struct {
		bounds Bounds
		change func(root string) error
		want   string
	}{
		"bytes":                 {Bounds{10, wide}, func(root string) error { return os.WriteFile(root+"/b", make([]byte, 10), 0o644) }, TooManyBytes},
		"the largest file":      {Bounds{10, wide}, func(root string) error { return os.WriteFile(root+"/b", make([]byte, 9), 0o644) }, ""},
		"bytes of names":        {Bounds{10, wide}, func(root string) error { return os.Mkdir(root+"/eleven-long", 0o755) }, TooManyBytes},
		"bytes of a target":     {Bounds{10, wide}, func(root string) error { return os.Symlink("1234567890", root+"/l") }, TooManyBytes},
		"entries":               {Bounds{wide, 2}, func(root string) error { return makeMany(root, 3) }, TooManyEntries},
		"as many as may be":     {Bounds{wide, 3}, func(root string) error { return makeMany(root, 3) }, ""},
		"far more entries":      {Bounds{wide, 3}, func(root string) error { return makeMany(root, 9000) }, TooManyEntries},
		"what is gone counts":   {Bounds{wide, 1}, func(root string) error { return os.RemoveAll(root + "/old") }, ""},
		"and each of the names": {Bounds{wide, 1}, func(root string) error { return errorOf(os.Remove(root+"/old/x"), os.Remove(root+"/old/y")) }, TooManyEntries},
		"holes count nothing":   {Bounds{10, wide}, func(root string) error { return makeHole(root+"/h", 1<<40) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := rootOf(t, "a", "old/x", "old/y")
			before, err := Take(root, nil, nil)
			must(t, err)
			must(t, test.change(root))
			got, isArchive := written(t, before, test.bounds)
			if isArchive != (test.want == "") || !isArchive && got != test.want {
				t.Errorf("archive %v, %.20q", isArchive, got)
			}
		})
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func makeMany(root string, count int) error {
	for number := range count {
		if err := os.Mkdir(fmt.Sprintf("%s/m%06d", root, number), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func makeHole(name string, size int64) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errorOf(file.Truncate(size), file.Close())
}

func TestSealKeepsBounds(t *testing.T) {
	file := func(name string, size int64) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}
	}
	for name, test := range map[string]struct {
		headers []*tar.Header
		isFine  bool
	}{
		"as many entries as may be": {[]*tar.Header{file("a", 0), file("b", 0)}, true},
		"one more":                  {[]*tar.Header{file("a", 0), file("b", 0), file("c", 0)}, false},
		"as many bytes as may be":   {[]*tar.Header{file("a", 9)}, true},
		"one byte more":             {[]*tar.Header{file("a", 10)}, false},
		"a size that nobody has":    {[]*tar.Header{file("a", 1<<60)}, false},
		"a long name":               {[]*tar.Header{file("elevenbytes", 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var made bytes.Buffer
			writer := tar.NewWriter(&made)
			for _, header := range test.headers {
				must(t, writer.WriteHeader(header))
				_, _ = writer.Write(make([]byte, min(header.Size, 100)))
			}
			_ = writer.Flush()
			var sealed bytes.Buffer
			_, err := Seal(&made, specs.CandidateBounds{WorkspaceBytes: 10, WorkspaceFiles: 2}, nil, bundle.New(&sealed))
			if test.isFine != (err == nil) || err != nil && !untrusted.IsUnreadable(err) {
				t.Errorf("%v", err)
			}
			if sealed.Len() > 4096 && err != nil {
				t.Errorf("%d bytes were written", sealed.Len())
			}
		})
	}
}

func TestNotesSayWhichBound(t *testing.T) {
	bounds := specs.CandidateBounds{WorkspaceBytes: 77, WorkspaceFiles: 88}
	for note, want := range map[string]string{TooManyBytes: "77 bytes", TooManyEntries: "88 entries", "x": "cannot be read"} {
		if err := ReadNote(note, bounds); !untrusted.IsUnreadable(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", note, err)
		}
	}
}

func TestAMountIsNoPartOfARoot(t *testing.T) {
	root := rootOf(t, "a", "here/x", "moved/below/y")
	for _, name := range []string{"here", "moved/below"} {
		mount := filepath.Join(root, name)
		must(t, unix.Mount("none", mount, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	}
	before, err := Take(root, nil, nil)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "here/new"), nil, 0o644))
	must(t, os.Rename(filepath.Join(root, "moved"), filepath.Join(root, "other")))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, "other/below"), unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(root, "other/below/new"), nil, 0o644))
	got, isArchive := written(t, before, Bounds{1 << 20, 100})
	if names := namesIn(t, got); !isArchive || strings.Join(names, " ") != "moved other/" {
		t.Errorf("%q", names)
	}
}

func namesIn(t *testing.T, archive string) []string {
	t.Helper()
	var names []string
	for reader := tar.NewReader(strings.NewReader(archive)); ; {
		header, err := reader.Next()
		if err != nil {
			return names
		}
		names = append(names, header.Name)
	}
}

func TestTwoReadingsOfTheSameChangesAreTheSameBytes(t *testing.T) {
	root := rootOf(t, "a", "b/c")
	before, err := Take(root, nil, nil)
	must(t, err)
	must(t, makeMany(root, 30))
	must(t, os.Remove(root+"/a"))
	one, _ := written(t, before, Bounds{1 << 20, 100})
	other, _ := written(t, before, Bounds{1 << 20, 100})
	if one != other || len(one) == 0 {
		t.Error("they differ")
	}
}

func TestARecordIsSmall(t *testing.T) {
	root := t.TempDir()
	must(t, makeMany(root, 2000))
	before, err := Take(root, nil, nil)
	must(t, err)
	if each := len(before.records) / before.count; before.count != 2000 || each > 28 {
		t.Errorf("%d bytes an entry of 7, %d entries", each, before.count)
	}
}

func TestADeepTreeEnds(t *testing.T) {
	root := t.TempDir()
	before, err := Take(root, nil, nil)
	must(t, err)
	must(t, os.MkdirAll(root+strings.Repeat("/d", maxDepth+50), 0o755))
	archive, _ := written(t, before, Bounds{1 << 20, 10_000})
	found, err := Seal(strings.NewReader(archive), specs.CandidateBounds{WorkspaceBytes: 1 << 20, WorkspaceFiles: 1000}, nil, bundle.New(&bytes.Buffer{}))
	if err != nil || found.Losses.Entries == 0 || found.Losses.Named[0].Reason != lostDeep {
		t.Errorf("%v, %+v", err, found)
	}
	again, err := Take(root, nil, nil)
	must(t, err)
	if archive, _ := written(t, again, Bounds{1 << 20, 10}); len(namesIn(t, archive)) != 0 {
		t.Error("an unchanged deep tree has changes")
	}
}
