package staging

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/bundle"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/rootfs"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

var wideBounds = specs.CandidateBounds{WorkspaceBytes: 1 << 20, WorkspaceFiles: 1000}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// image makes a root file system; the same each time.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	in := func(name string) string { return filepath.Join(root, name) }
	for _, name := range []string{"app/old", "usr/bin", "usr/lib/deep/er", "etc", "closed", "opt/securebench/output", "proc", "tests"} {
		must(t, os.MkdirAll(in(name), 0o755))
	}
	for name, content := range map[string]string{
		"app/kept": "kept", "app/old/a": "a", "app/old/b": "b", "usr/bin/tool": "tool", "usr/lib/deep/er/x": "x",
		"etc/conf": "conf", "closed/inside": "inside", "usr/lib/one": "linked",
	} {
		must(t, os.WriteFile(in(name), []byte(content), 0o644))
	}
	must(t, os.Link(in("usr/lib/one"), in("usr/lib/two")))
	must(t, os.Symlink("usr/bin", in("bin")))
	must(t, os.Chmod(in("closed"), 0o555))
	return root
}

// tree says what lies in a root file system.
func tree(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	linked := map[uint64]string{}
	must(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		must(t, err)
		var status unix.Stat_t
		must(t, unix.Lstat(name, &status))
		path := strings.TrimPrefix(name, root)
		line := fmt.Sprintf("%s %o %d:%d", path, status.Mode, status.Uid, status.Gid)
		switch {
		case entry.Type().IsRegular():
			content, err := os.ReadFile(name)
			must(t, err)
			line += fmt.Sprintf(" %q", content)
			if first := linked[status.Ino]; first != "" {
				line += " is " + first
			}
			linked[status.Ino] = path
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			must(t, err)
			line += " to " + target
		}
		lines = append(lines, line)
		return nil
	}))
	return strings.Join(lines, "\n")
}

// sealedChanges runs a command on an image and returns the sealed archive of what it changed.
func sealedChanges(t *testing.T, root string, change func(in func(string) string)) (specs.RootChanges, outcome.Losses) {
	t.Helper()
	excluded := []string{"/opt/securebench", "/tests"}
	before, err := rootfs.Take(root, excluded, nil)
	must(t, err)
	change(func(name string) string { return filepath.Join(root, name) })
	folder := t.TempDir()
	output, err := untrusted.OpenFolder(folder)
	must(t, err)
	defer output.Close()
	must(t, before.Write(output, rootfs.Bounds{Bytes: wideBounds.WorkspaceBytes, Entries: wideBounds.WorkspaceFiles}))
	written, err := os.ReadFile(filepath.Join(folder, outcome.RootFile))
	must(t, err)
	return sealedArchive(t, written)
}

func sealedArchive(t *testing.T, written []byte) (specs.RootChanges, outcome.Losses) {
	t.Helper()
	var sealed bytes.Buffer
	archive := bundle.New(&sealed)
	exclude := map[string]bool{"opt/securebench": true, "tests": true}
	found, err := rootfs.Seal(bytes.NewReader(written), wideBounds, exclude, archive)
	must(t, err)
	name := filepath.Join(t.TempDir(), "root.tar")
	must(t, os.WriteFile(name, sealed.Bytes(), 0o644))
	return specs.RootChanges{Path: name, Digest: archive.Digest(), Excluded: []string{"/opt/securebench", "/tests"}}, found.Losses
}

// changed makes sealed changes in another root file system.
func changed(t *testing.T, root string, spec specs.RootChanges) (outcome.Losses, error) {
	t.Helper()
	before := rootPlace
	rootPlace = root
	t.Cleanup(func() { rootPlace = before })
	excluded := make([]string, len(spec.Excluded))
	for index, place := range spec.Excluded {
		excluded[index] = root + place
	}
	spec.Excluded = excluded
	return ChangeRoot(spec)
}

func TestChangesOfARootBecomeThoseOfAnotherOne(t *testing.T) {
	for name, change := range map[string]func(func(string) string) error{
		"nothing":        func(func(string) string) error { return nil },
		"a new file":     func(in func(string) string) error { return os.WriteFile(in("app/new"), []byte("new"), 0o640) },
		"other content":  func(in func(string) string) error { return os.WriteFile(in("app/kept"), []byte("KEPT"), 0o644) },
		"a file is gone": func(in func(string) string) error { return os.Remove(in("usr/bin/tool")) },
		"a folder is gone": func(in func(string) string) error {
			return os.RemoveAll(in("usr/lib/deep"))
		},
		"a mode":             func(in func(string) string) error { return os.Chmod(in("etc/conf"), 0o600) },
		"a mode of a folder": func(in func(string) string) error { return os.Chmod(in("usr/lib"), 0o700) },
		"an owner":           func(in func(string) string) error { return os.Chown(in("etc/conf"), 12, 345) },
		"an owner of a folder": func(in func(string) string) error {
			return os.Chown(in("app"), 3_000_000, 12)
		},
		"an empty folder": func(in func(string) string) error { return os.Mkdir(in("app/empty"), 0o711) },
		"a folder that gives its group": func(in func(string) string) error {
			return first(os.Chown(in("usr/lib"), 0, 50), os.Chmod(in("usr/lib"), 0o775|fs.ModeSetgid), os.Mkdir(in("usr/lib/own"), 0o755), os.WriteFile(in("usr/lib/own/x"), nil, 0o644))
		},
		"a link": func(in func(string) string) error { return os.Symlink("kept", in("app/link")) },
		"a folder becomes a link": func(in func(string) string) error {
			return first(os.RemoveAll(in("usr/lib/deep")), os.Symlink("../../app", in("usr/lib/deep")))
		},
		"a link becomes a folder": func(in func(string) string) error {
			return first(os.Remove(in("bin")), os.Mkdir(in("bin"), 0o755), os.WriteFile(in("bin/tool"), nil, 0o755))
		},
		"a folder becomes a file": func(in func(string) string) error {
			return first(os.RemoveAll(in("app/old")), os.WriteFile(in("app/old"), []byte("file"), 0o644))
		},
		"a file becomes a folder": func(in func(string) string) error {
			return first(os.Remove(in("app/kept")), os.Mkdir(in("app/kept"), 0o755), os.WriteFile(in("app/kept/x"), nil, 0o644))
		},
		"a folder that is made again": func(in func(string) string) error {
			return first(os.RemoveAll(in("app/old")), os.Mkdir(in("app/old"), 0o755), os.WriteFile(in("app/old/b"), []byte("c"), 0o644))
		},
		"files of several names": func(in func(string) string) error {
			return first(os.WriteFile(in("app/first"), []byte("f"), 0o644), os.Link(in("app/first"), in("app/z")), os.Link(in("app/first"), in("etc/y")))
		},
		"another name of a file of the image": func(in func(string) string) error {
			return os.Link(in("usr/bin/tool"), in("app/tool"))
		},
		"a file that cannot be read by its mode": func(in func(string) string) error {
			return os.WriteFile(in("app/secret"), []byte("s"), 0)
		},
		"a new file in a folder that is closed": func(in func(string) string) error {
			return first(os.Chmod(in("closed"), 0o755), os.WriteFile(in("closed/new"), nil, 0o644), os.Chmod(in("closed"), 0o555))
		},
		"a moved folder": func(in func(string) string) error { return os.Rename(in("app/old"), in("etc/moved")) },
		"a name that sorts between a folder and its content": func(in func(string) string) error {
			return first(os.WriteFile(in("app/old-"), nil, 0o644), os.WriteFile(in("app/old/0"), nil, 0o644), os.WriteFile(in("app/old0"), nil, 0o644))
		},
		"long names": func(in func(string) string) error {
			long := strings.Repeat("é", 120)
			return first(os.MkdirAll(in("app/"+long+"/"+long), 0o755), os.Symlink(strings.Repeat("../", 90)+"x", in("app/"+long+"/link")))
		},
		"times": func(in func(string) string) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, in("app/kept"), []unix.Timespec{{Sec: 5, Nsec: 7}, {Sec: -5, Nsec: 7}}, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			agents, verifiers := image(t), image(t)
			spec, losses := sealedChanges(t, agents, func(in func(string) string) { must(t, change(in)) })
			more, err := changed(t, verifiers, spec)
			if err != nil || losses.Entries != 0 || more.Entries != 0 || losses.Named != nil || more.Named != nil {
				t.Fatalf("%v, %+v, %+v", err, losses, more)
			}
			// A file whose mode hid it was opened for the archive.
			if name != "a file that cannot be read by its mode" {
				if got, want := tree(t, verifiers), tree(t, agents); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			} else if info, err := os.Stat(filepath.Join(verifiers, "app/secret")); err != nil || info.Mode() != 0 || info.Size() != 1 {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestSameLengthAndTimesDoNotHideAChange: what a command can set of a file's status it sets back.
func TestSameLengthAndTimesDoNotHideAChange(t *testing.T) {
	agents, verifiers := image(t), image(t)
	spec, _ := sealedChanges(t, agents, func(in func(string) string) {
		var status unix.Stat_t
		must(t, unix.Stat(in("app/kept"), &status))
		file, err := os.OpenFile(in("app/kept"), os.O_RDWR, 0)
		must(t, err)
		mapped, err := unix.Mmap(int(file.Fd()), 0, 4, unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		copy(mapped, "evil")
		must(t, unix.Munmap(mapped))
		must(t, file.Close())
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, in("app/kept"), []unix.Timespec{status.Atim, status.Mtim}, 0))
	})
	if _, err := changed(t, verifiers, spec); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(verifiers, "app/kept")); string(got) != "evil" {
		t.Errorf("%q", got)
	}
}

func TestWhatIsNoPartOfARootIsLeftOut(t *testing.T) {
	agents, verifiers := image(t), image(t)
	spec, losses := sealedChanges(t, agents, func(in func(string) string) {
		for _, name := range []string{"opt/securebench/output/x", "tests/test.sh"} {
			must(t, os.WriteFile(in(name), nil, 0o644))
		}
		must(t, unix.Mkfifo(in("app/fifo"), 0o644))
		must(t, os.Remove(in("app/kept")))
		must(t, unix.Mkfifo(in("app/kept"), 0o644))
		must(t, os.WriteFile(in("app/\xff"), nil, 0o644))
		must(t, os.Symlink("\xff", in("app/raw")))
		must(t, os.WriteFile(in("app/set"), nil, 0o644))
		must(t, os.Chmod(in("app/set"), 0o755|fs.ModeSetuid))
		descriptor, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		must(t, err)
		defer unix.Close(descriptor)
		// The folder of a test may be too long a name for a socket.
		must(t, os.Chdir(in("app")))
		defer func() { must(t, os.Chdir("/")) }()
		must(t, unix.Bind(descriptor, &unix.SockaddrUnix{Name: "socket"}))
	})
	more, err := changed(t, verifiers, spec)
	if err != nil || more.Entries != 0 {
		t.Fatal(err, more)
	}
	var reasons []string
	for _, each := range losses.Named {
		reasons = append(reasons, each.Path+": "+each.Reason)
	}
	want := []string{
		"app/fifo: a FIFO", "app/kept: a FIFO", "app/raw: its target is not UTF-8", "app/set: without its set-id bits",
		"app/socket: a socket", `app/\xff: its name is not UTF-8`,
	}
	if !slices.Equal(reasons, want) || losses.Entries != 5 {
		t.Errorf("%q, %d", reasons, losses.Entries)
	}
	got := tree(t, verifiers)
	for _, missing := range []string{"/app/kept", "test.sh", "output/x", "fifo", "socket", "raw"} {
		if strings.Contains(got, missing) {
			t.Errorf("%s is there:\n%s", missing, got)
		}
	}
	if !strings.Contains(got, "/app/set 100755 ") {
		t.Error(got)
	}
}

func TestAFileWithHolesKeepsThem(t *testing.T) {
	agents, verifiers := image(t), image(t)
	spec, _ := sealedChanges(t, agents, func(in func(string) string) {
		file, err := os.Create(in("app/sparse"))
		must(t, err)
		must(t, file.Truncate(1<<33))
		_, err = file.WriteAt([]byte("end"), 1<<33-3)
		must(t, first(err, file.Close()))
	})
	if _, err := changed(t, verifiers, spec); err != nil {
		t.Fatal(err)
	}
	var status unix.Stat_t
	must(t, unix.Stat(filepath.Join(verifiers, "app/sparse"), &status))
	if status.Size != 1<<33 || status.Blocks > 64 {
		t.Errorf("%d bytes in %d blocks", status.Size, status.Blocks)
	}
}

// TestArchivesThatACommandWroteItself are not what a walk would have written.
func TestArchivesThatACommandWroteItself(t *testing.T) {
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
	for name, headers := range map[string][]*tar.Header{
		"an absolute path":    {file("/etc/passwd")},
		"a way out":           {file("../x")},
		"a way out, later":    {file("a/../../x")},
		"a dot":               {file("./x")},
		"an empty part":       {file("a//x")},
		"the root":            {{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}},
		"twice":               {file("a"), file("a")},
		"out of order":        {file("b"), file("a")},
		"an order of bytes":   {{Name: "a/", Typeflag: tar.TypeDir}, file("a-"), file("a/x")},
		"below a file":        {file("a"), file("a/x")},
		"below a link":        {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, file("a/x")},
		"below what is gone":  {{Name: "a", Typeflag: tar.TypeChar}, file("a/x")},
		"a device":            {{Name: "a", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"a kind of nobody":    {{Name: "a", Typeflag: 'Z'}},
		"a link to nothing":   {{Name: "a", Typeflag: tar.TypeSymlink}},
		"a file in pieces":    {{Name: "a", Typeflag: tar.TypeReg, PAXRecords: map[string]string{untrusted.ExtentsRecord: "5,0,9"}}},
		"an impossible owner": {{Name: "a", Typeflag: tar.TypeReg, Uid: 1 << 33, Format: tar.FormatPAX}},
	} {
		t.Run(name, func(t *testing.T) {
			var made bytes.Buffer
			writer := tar.NewWriter(&made)
			for _, header := range headers {
				must(t, writer.WriteHeader(header))
			}
			must(t, writer.Close())
			_, err := rootfs.Seal(&made, wideBounds, nil, bundle.New(&bytes.Buffer{}))
			if !untrusted.IsUnreadable(err) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("no archive at all", func(t *testing.T) {
		_, err := rootfs.Seal(strings.NewReader(strings.Repeat("x", 2000)), wideBounds, nil, bundle.New(&bytes.Buffer{}))
		if !untrusted.IsUnreadable(err) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a name of a file that is not in it", func(t *testing.T) {
		var made bytes.Buffer
		writer := tar.NewWriter(&made)
		must(t, writer.WriteHeader(&tar.Header{Name: "app/x", Typeflag: tar.TypeLink, Linkname: "etc/conf"}))
		must(t, writer.Close())
		spec, losses := sealedArchive(t, made.Bytes())
		verifiers := image(t)
		if _, err := changed(t, verifiers, spec); err != nil || losses.Entries != 1 || strings.Contains(tree(t, verifiers), "/app/x") {
			t.Errorf("%v, %+v", err, losses)
		}
	})
}

func TestChangesAreNeverMadeOnAMount(t *testing.T) {
	verifiers := image(t)
	mount := filepath.Join(verifiers, "usr/lib")
	must(t, unix.Mount("none", mount, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(mount, "kept"), nil, 0o644))
	for name, change := range map[string]func(func(string) string) error{
		"a file on it": func(in func(string) string) error { return os.WriteFile(in("usr/lib/new"), nil, 0o644) },
		"a link in place of it": func(in func(string) string) error {
			return first(os.RemoveAll(in("usr/lib")), os.Symlink("/etc", in("usr/lib")))
		},
		"a link in place of its up": func(in func(string) string) error {
			return first(os.RemoveAll(in("usr")), os.Symlink("/etc", in("usr")))
		},
		"it is gone":         func(in func(string) string) error { return os.RemoveAll(in("usr/lib")) },
		"its folder is gone": func(in func(string) string) error { return os.RemoveAll(in("usr")) },
	} {
		t.Run(name, func(t *testing.T) {
			spec, _ := sealedChanges(t, image(t), func(in func(string) string) { must(t, change(in)) })
			if _, err := changed(t, verifiers, spec); err != nil {
				t.Fatal(err)
			}
			if names, err := os.ReadDir(mount); err != nil || len(names) != 1 || names[0].Name() != "kept" {
				t.Errorf("%v, %v", names, err)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(verifiers, "usr/bin")); err == nil {
		t.Error("what lay beside the mount is still there")
	}
}
