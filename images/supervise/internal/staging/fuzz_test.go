package staging

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/rootfs"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// FuzzUnpack: nothing is ever made outside of the place or below a protected path, and what is
// made is plain. The input is an archive as it is.
func FuzzUnpack(f *testing.F) {
	for _, seed := range []func(*tar.Writer){
		func(w *tar.Writer) {
			put(w, "a/b", tar.TypeReg, "", "text")
			put(w, "a/l", tar.TypeSymlink, "../c", "")
			put(w, "d/", tar.TypeDir, "", "")
		},
		func(w *tar.Writer) {
			put(w, "l", tar.TypeSymlink, ".", "")
			put(w, "l/../../x", tar.TypeReg, "", "x")
		},
		func(w *tar.Writer) {
			put(w, "l", tar.TypeSymlink, "../outside", "")
			put(w, "l/x", tar.TypeReg, "", "x")
		},
		func(w *tar.Writer) {
			put(w, "kept/in", tar.TypeReg, "", "x")
			put(w, "kept", tar.TypeReg, "", "x")
			put(w, "deep/guarded", tar.TypeSymlink, "x", "")
			put(w, "deep", tar.TypeReg, "", "")
		},
		func(w *tar.Writer) { put(w, "h", tar.TypeLink, "/etc/passwd", "") },
		func(w *tar.Writer) {
			put(w, "a", tar.TypeReg, "", "text")
			put(w, "b/h", tar.TypeLink, "a", "")
			put(w, "c", tar.TypeLink, "kept/inner", "")
		},
		func(w *tar.Writer) {
			put(w, "a", tar.TypeSymlink, "securebench", "")
			put(w, "securebench/x", tar.TypeReg, "", "")
		},
		func(w *tar.Writer) {
			_ = w.WriteHeader(&tar.Header{Name: "s", Size: 2, PAXRecords: map[string]string{untrusted.ExtentsRecord: "900,8,1,80,1"}})
			_, _ = w.Write([]byte("xy"))
		},
		func(w *tar.Writer) { put(w, strings.Repeat("n", 300), tar.TypeReg, "", "long") },
	} {
		var archive bytes.Buffer
		writer := tar.NewWriter(&archive)
		seed(writer)
		_ = writer.Close()
		f.Add(archive.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) { unpackInto(t, archive) })
}

// FuzzUnpackEntries: the same with an archive made of entries that the input describes, so that
// every input gets past the checksums. Each line is a type, a name and a link target or content.
func FuzzUnpackEntries(f *testing.F) {
	f.Add("0 a/b text\n2 l ../outside\n0 l/x x\n5 d -")
	f.Add("2 a b\n2 b ..\n0 a/x x\n0 b/../x y")
	f.Add("5 kept -\n0 kept/inner new\n2 kept x\n0 deep/guarded/x y\n2 deep/guarded ..")
	f.Add("2 a a\n0 a/b c\n5 a -\n2 a/b ../../outside\n0 a/b/c d\n1 h /etc/passwd\n6 fifo -\n3 dev -")
	f.Fuzz(func(t *testing.T, text string) {
		var archive bytes.Buffer
		writer := tar.NewWriter(&archive)
		for _, line := range strings.Split(text, "\n") {
			kind, rest, _ := strings.Cut(line, " ")
			name, value, _ := strings.Cut(rest, " ")
			if kind == "" {
				continue
			}
			if kind[0] == tar.TypeReg {
				put(writer, name, kind[0], "", value)
			} else {
				put(writer, name, kind[0], value, "")
			}
		}
		_ = writer.Close()
		unpackInto(t, archive.Bytes())
	})
}

func put(writer *tar.Writer, name string, kind byte, link, content string) {
	header := &tar.Header{Name: name, Typeflag: kind, Linkname: link, Size: int64(len(content)), Mode: 0o644}
	if writer.WriteHeader(header) == nil {
		_, _ = writer.Write([]byte(content))
	}
}

func unpackInto(t *testing.T, archive []byte) {
	t.Helper()
	root := t.TempDir()
	place, outside := filepath.Join(root, "place"), filepath.Join(root, "outside")
	for _, folder := range []string{outside, filepath.Join(place, "kept"), filepath.Join(place, "deep/guarded")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"outside/secret", "place/kept/inner", "place/deep/guarded/inner", "candidate.tar"} {
		content := []byte("untouched")
		if name == "candidate.tar" {
			content = archive
		}
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	digest := sha256.Sum256(archive)
	spec := specs.Candidate{
		Path: filepath.Join(root, "candidate.tar"), Digest: untrusted.DigestPrefix + hex.EncodeToString(digest[:]), To: place,
	}
	protected := []string{filepath.Join(place, "kept"), filepath.Join(place, "deep/guarded")}
	_, _ = StageCandidate(spec, protected, func() error { return nil })
	checkUnpacked(t, root, place, int64(len(archive)))
}

func checkUnpacked(t *testing.T, root, place string, size int64) {
	t.Helper()
	for _, name := range []string{"outside/secret", "place/kept/inner", "place/deep/guarded/inner"} {
		if content, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(content) != "untouched" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	for folder, want := range map[string]int{".": 3, "outside": 1, "place/kept": 1, "place/deep/guarded": 1} {
		if entries, err := os.ReadDir(filepath.Join(root, folder)); err != nil || len(entries) != want {
			t.Errorf("%s holds %v, %v", folder, entries, err)
		}
	}
	var total int64
	err := filepath.WalkDir(place, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(place, name)
		switch mode := info.Mode(); {
		case mode&(fs.ModeSetuid|fs.ModeSetgid) != 0:
			t.Errorf("%s has mode %v", relative, mode)
		case mode.IsRegular():
			status := info.Sys().(*syscall.Stat_t)
			total += min(info.Size(), status.Blocks*512) / int64(status.Nlink)
		case mode&fs.ModeSymlink != 0:
			if end, err := filepath.EvalSymlinks(name); err == nil && strings.HasPrefix(end, filepath.Join(place, frameworkFolder)) {
				t.Errorf("link %s to %q", relative, end)
			}
		case !mode.IsDir():
			t.Errorf("%s is %v", relative, mode)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if total > size+2*int64(len("untouched")) {
		t.Errorf("%d bytes came out of %d", total, size)
	}
}

// FuzzChangeRoot: whatever an archive of changes says, what is protected stays as it was and nothing is made outside of
// the root; and what was sealed once is sealed again as the same bytes. Lines are as in FuzzUnpackEntries; 3 is what
// is gone.
func FuzzChangeRoot(f *testing.F) {
	f.Add("5 a/ -\n0 a/b text\n2 l ../outside\n1 z a/b")
	f.Add("3 deep -\n3 kept -")
	f.Add("2 deep ../outside\n0 kept x")
	f.Add("2 a deep\n2 b a/guarded/inner\n2 c ../outside/secret\n2 d /")
	f.Add("0 a x\n1 b kept/inner\n6 fifo -\ns socket -\nu closed -\n0 \xff x")
	f.Fuzz(func(t *testing.T, text string) {
		var archive bytes.Buffer
		writer := tar.NewWriter(&archive)
		for _, line := range strings.Split(text, "\n") {
			kind, rest, _ := strings.Cut(line, " ")
			name, value, _ := strings.Cut(rest, " ")
			if kind == "" {
				continue
			}
			if kind[0] == tar.TypeReg {
				put(writer, name, kind[0], "", value)
			} else {
				put(writer, name, kind[0], value, "")
			}
		}
		_ = writer.Close()
		var sealed, again bytes.Buffer
		first := bundle.New(&sealed)
		found, err := rootfs.Seal(&archive, wideBounds, nil, first)
		if err != nil {
			return
		}
		same, err := rootfs.Seal(bytes.NewReader(sealed.Bytes()), wideBounds, nil, bundle.New(&again))
		if err != nil || same.Digest != found.Digest || same.Losses.Entries != 0 || !bytes.Equal(sealed.Bytes(), again.Bytes()) {
			t.Errorf("sealed again: %v, %+v, %+v", err, same, found)
		}
		changeInside(t, sealed.Bytes(), first.Digest())
	})
}

func changeInside(t *testing.T, sealed []byte, digest string) {
	t.Helper()
	root := t.TempDir()
	place, outside := filepath.Join(root, "place"), filepath.Join(root, "outside")
	for _, folder := range []string{outside, filepath.Join(place, "kept"), filepath.Join(place, "deep/guarded")} {
		must(t, os.MkdirAll(folder, 0o755))
	}
	for _, name := range []string{"outside/secret", "place/kept/inner", "place/deep/guarded/inner"} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte("untouched"), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(root, "root.tar"), sealed, 0o644))
	before := rootPlace
	rootPlace = place
	defer func() { rootPlace = before }()
	excluded := []string{filepath.Join(place, "kept"), filepath.Join(place, "deep/guarded")}
	_, _ = ChangeRoot(specs.RootChanges{Path: filepath.Join(root, "root.tar"), Digest: digest, Excluded: excluded})
	for _, name := range []string{"outside/secret", "place/kept/inner", "place/deep/guarded/inner"} {
		if content, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(content) != "untouched" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	for folder, want := range map[string]int{".": 3, "outside": 1, "place/kept": 1, "place/deep/guarded": 1} {
		if entries, err := os.ReadDir(filepath.Join(root, folder)); err != nil || len(entries) != want {
			t.Errorf("%s holds %v, %v", folder, entries, err)
		}
	}
	must(t, filepath.WalkDir(place, func(name string, entry fs.DirEntry, err error) error {
		must(t, err)
		if entry.Type()&fs.ModeSymlink == 0 {
			return nil
		}
		for _, each := range excluded {
			if end, err := filepath.EvalSymlinks(name); err == nil && (end == each || strings.HasPrefix(end, each+"/")) {
				t.Errorf("link %s to %q", name, end)
			}
		}
		return nil
	}))
}
