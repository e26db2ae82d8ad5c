package courier

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
	"securebench.dev/supervise/internal/untrusted"
)

// decisions are taken from bytes; zeros when there are none left.
type decisions struct{ data []byte }

func (d *decisions) next() byte {
	if len(d.data) == 0 {
		return 0
	}
	result := d.data[0]
	d.data = d.data[1:]
	return result
}

var (
	fuzzNames = []string{
		"a", "b", "c", "securebench", "task.json", "kept", "inner", "answer.txt", "new\nline", "\xff\xfe", "back\\slash",
		"...", " ", "-rf", strings.Repeat("n", 255), "é", "pax=1", "A", "\xed\xa0\x80",
	}
	fuzzTargets = []string{
		"a", "..", "../..", "../outside", "/etc", ".", "a/b", "../a", "securebench/x", "b/../../c", "c/..", "kept/inner",
		strings.Repeat("x", 200), "\xff", "a/../a/../..", "../workspace/a", "//", "./a/", "answer.txt",
	}
	fuzzContents = []string{"", "text", "\xff\xfe", "nul\x00", "é", strings.Repeat("x", 300), strings.Repeat("y", 5000)}
	fuzzPaths    = []string{"answer.txt", "a/b", "kept/inner", "a", "b/c/answer.txt"}
)

func (d *decisions) name() string {
	number := int(d.next())
	if number < len(fuzzNames) {
		return fuzzNames[number]
	}
	return string([]byte{byte(number)})
}

func (d *decisions) path() string {
	parts := make([]string, 1+d.next()%4)
	for index := range parts {
		parts[index] = d.name()
	}
	return strings.Join(parts, "/")
}

// placed is a path in a tree on whose way no link is, or empty: nothing is ever made outside.
func placed(root, name string, isMade bool) string {
	parent := root
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		parent += "/" + part
		if isMade {
			_ = os.Mkdir(parent, 0o755)
		}
		if info, err := os.Lstat(parent); err != nil || !info.IsDir() {
			return ""
		}
	}
	return root + "/" + name
}

// build makes a tree; what cannot be made is left out, like an agent's failing command.
func (d *decisions) build(root string) {
	for len(d.data) > 0 {
		step, name := d.next(), d.path()
		if place := placed(root, name, step&0x80 != 0); place != "" {
			d.make(step&0x0f, root, name, place)
		}
	}
}

func (d *decisions) make(step byte, root, name, place string) {
	switch step {
	case 0, 1, 2, 3:
		makeFile(place, fuzzContents[int(d.next())%len(fuzzContents)], 0)
	case 4, 5, 6:
		_ = os.Symlink(fuzzTargets[int(d.next())%len(fuzzTargets)], place)
	case 7:
		_ = os.Mkdir(place, 0o755)
	case 8:
		if info, err := os.Lstat(place); err == nil && info.Mode()&os.ModeSymlink == 0 {
			_ = unix.Chmod(place, uint32(d.next())<<4|0o400)
		}
	case 9:
		makeFile(place, "", 1<<(d.next()%20))
	case 10:
		placed(root, name+strings.Repeat("/d", int(d.next())+20), true)
	case 11:
		if from := placed(root, d.path(), false); from != "" {
			_ = os.Rename(from, place)
		}
	case 12:
		_ = unix.Mkfifo(place, 0o644)
	case 13:
		if from := placed(root, d.path(), false); from != "" {
			_ = unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, place, 0)
		}
	case 14:
		_ = os.Link(filepath.Join(filepath.Dir(root), "outside/secret"), place)
	default:
		_ = unix.Mknod(place, unix.S_IFSOCK|0o644, 0)
	}
}

func makeFile(name, content string, size int64) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return
	}
	_, _ = file.WriteString(content)
	if size > 0 {
		_ = file.Truncate(size)
	}
	_ = file.Close()
}

const fuzzLimits = `{"text_bytes":200,"patch_bytes":200,"workspace_bytes":20000,"workspace_files":60,"stream_bytes":10}`

// FuzzSeal: whatever an agent left, sealing changes nothing else, twice gives the same, and an archive holds
// clean names, plain kinds and the bytes of the tree.
func FuzzSeal(f *testing.F) {
	for _, seed := range [][]byte{
		{0, 0x80, 1, 0, 1, 1}, {0, 0x84, 0, 0, 3, 0x84, 0, 1, 1, 9}, {1, 0x80, 0, 7, 1, 0x84, 0, 7, 2}, {2, 0x80, 1, 0, 1, 4},
		{0, 0x8a, 0, 0, 250, 0x89, 0, 1, 30, 0x8c, 0, 2, 0x8f, 0, 0}, {3, 0x84, 0, 5, 3, 0x80, 1, 5, 6, 1},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := couriersVolumes(t)
		replace(t, &untrusted.Fsync, func(func(int) error) func(int) error { return func(int) error { return nil } })
		must(t, os.Remove(in("workspace/out")))
		writeAt(t, in("outside/secret"), "secret of another")
		made := &decisions{data}
		extraction := testTree
		if number := int(made.next()) % (len(fuzzPaths) + 1); number > 0 {
			extraction = `{"mode":"file","path":"` + fuzzPaths[number-1] + `","kind":"code"}`
		}
		made.build(in("workspace"))
		spec := strings.Replace(sealSpec(extraction), `["securebench"]`, `["task.json","kept/inner"]`, 1)
		spec = strings.Replace(spec, testLimits, fuzzLimits, 1)
		code, message, text := sealing(t, spec)
		must(t, os.Remove(in("producer/sealed.json")))
		if _, _, again := sealing(t, spec); code != outcome.CodeDone || again != text {
			t.Fatalf("%d: %s, then %s", code, text, again)
		}
		if secret, err := os.ReadFile(in("outside/secret")); err != nil || string(secret) != "secret of another" {
			t.Errorf("%q, %v", secret, err)
		}
		checkSealed(t, in, message)
	})
}

func checkSealed(t *testing.T, in func(...string) string, message said) {
	found, err := os.ReadDir(in("candidate"))
	must(t, err)
	if message.Problem != "" || message.File == "" {
		if len(found) != 0 || message.Problem == "" {
			t.Errorf("%+v with %v", message, found)
		}
		return
	}
	content, err := os.ReadFile(in("candidate", message.File))
	must(t, err)
	if len(found) != 1 {
		t.Errorf("%v", found)
	}
	if message.File == textFile {
		if !utf8.Valid(content) || bytes.Contains(content, []byte{0}) || len(content) > 200 {
			t.Errorf("%q is sealed", content)
		}
		return
	}
	checkBundle(t, in("workspace"), content)
}

func checkBundle(t *testing.T, workspace string, content []byte) {
	reader := tar.NewReader(bytes.NewReader(content))
	var names []string
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		name := strings.TrimSuffix(header.Name, "/")
		if names == nil {
			names = []string{}
			if name != untrusted.RootPath {
				t.Errorf("%q is first", name)
			}
			continue
		}
		names = append(names, name)
		if !specs.IsCleanRelative(name) || name == "task.json" || strings.HasPrefix(name, "task.json/") || name == "kept/inner" {
			t.Errorf("%q crossed", name)
		}
		source := filepath.Join(workspace, name)
		real, err := filepath.EvalSymlinks(filepath.Dir(source))
		if err != nil || real != filepath.Dir(source) {
			t.Errorf("%q is reached by a link: %s, %v", name, real, err)
		}
		checkEntry(t, workspace, name, header, reader)
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%q are not in order", names)
	}
}

// expanded is the content of a file with its holes.
func expanded(t *testing.T, header *tar.Header, carried []byte) []byte {
	text, isSparse := header.PAXRecords[untrusted.ExtentsRecord]
	if !isSparse {
		return carried
	}
	size, parts, err := untrusted.ParseExtents(text, int64(len(carried)))
	must(t, err)
	whole := make([]byte, size)
	for _, part := range parts {
		carried = carried[copy(whole[part.Offset:part.Offset+part.Length], carried):]
	}
	return whole
}

func checkEntry(t *testing.T, workspace, name string, header *tar.Header, content io.Reader) {
	source := filepath.Join(workspace, name)
	if info, err := os.Lstat(source); err != nil || header.ModTime.UnixNano() != info.ModTime().UnixNano() ||
		uint32(header.Mode)&untrusted.KeptModes != uint32(header.Mode) || uint32(header.Mode)&0o777 != uint32(info.Mode().Perm()) {
		t.Errorf("%q has mode %o and time %v, %v", name, header.Mode, header.ModTime, err)
	}
	switch header.Typeflag {
	case tar.TypeReg:
		got, err := io.ReadAll(content)
		must(t, err)
		if want, err := os.ReadFile(source); err != nil || !bytes.Equal(expanded(t, header, got), want) {
			t.Errorf("%q holds %q instead of %q", name, got, want)
		}
	case tar.TypeSymlink:
		if target, err := os.Readlink(source); err != nil || target != header.Linkname {
			t.Errorf("%q leads to %q", name, header.Linkname)
		}
	case tar.TypeLink:
		first, err := os.Stat(filepath.Join(workspace, header.Linkname))
		if second, other := os.Stat(source); err != nil || other != nil || !os.SameFile(first, second) {
			t.Errorf("%q is no other name of %q", name, header.Linkname)
		}
	case tar.TypeDir:
		if info, err := os.Lstat(source); err != nil || !info.IsDir() {
			t.Errorf("%q is no folder: %v", name, err)
		}
	default:
		t.Errorf("%q has type %q", name, header.Typeflag)
	}
}
