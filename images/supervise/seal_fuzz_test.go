package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// FuzzDecodeCourier: what is accepted keeps the rules on paths and bounds.
func FuzzDecodeCourier(f *testing.F) {
	collect := `{"version":1,"mode":"collect","limits":` + testLimits + `}`
	for _, seed := range []string{
		collect, sealSpec(testFile), sealSpec(testTree), collect + collect, strings.ToUpper(collect), "null", "\ufeff" + collect,
		strings.Replace(sealSpec(testFile), "answer", `\ud800`, 1), strings.Replace(collect, "100", "1e400", 1),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		task, err := decodeCourier(text)
		if err != nil {
			return
		}
		if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
			t.Errorf("%q is accepted", text)
		}
		for name := range task.exclude {
			if filepath.Clean("/"+name) != "/"+name {
				t.Errorf("exclusion %q", name)
			}
		}
		if task.extraction != nil && task.extraction.Mode == fromFile && filepath.Clean("/"+*task.extraction.Path) != "/"+*task.extraction.Path {
			t.Errorf("path %q", *task.extraction.Path)
		}
		bounds := task.bounds
		if min(bounds.patchBytes, bounds.streamBytes, bounds.textBytes, bounds.workspaceBytes, bounds.workspaceFiles) < 0 {
			t.Errorf("bounds %v", bounds)
		}
	})
}

// FuzzStreamText: a text is UTF-8 of about the limit, whole where it may be, and starts as the stream does.
func FuzzStreamText(f *testing.F) {
	for _, seed := range []string{"plain", "line\nline", "é€😀", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f\x98x", "\xf4\x90\x80\x80", "\x80\x80\x80\x80"} {
		f.Add([]byte(seed), 2, 3, 5)
		f.Add([]byte(strings.Repeat(seed, 20)), 30, 20, 40)
	}
	f.Fuzz(func(t *testing.T, data []byte, head, tail, limit int) {
		head = min(max(head, 0), len(data))
		tail, limit = min(max(tail, 0), len(data)-head), min(max(limit, 0), 1<<16)
		folder := t.TempDir()
		stream := output{pieceOf(t, folder, "head", data[:head]), pieceOf(t, folder, "tail", data[len(data)-tail:]), int64(len(data))}
		var text bytes.Buffer
		target := bufio.NewWriter(&text)
		truncated, err := stream.writeText(target, int64(limit))
		must(t, errors.Join(err, target.Flush()))
		if !utf8.Valid(text.Bytes()) {
			t.Errorf("%q is no text", text.Bytes())
		}
		isWhole := head+tail == len(data) && len(data) <= limit
		if truncated == isWhole {
			t.Errorf("truncated %v", truncated)
		}
		if isWhole && utf8.Valid(data) && !bytes.Equal(text.Bytes(), data) {
			t.Errorf("%q became %q", data, text.Bytes())
		}
		before, _, cut := strings.Cut(text.String(), "[securebench: ")
		if cut && truncated && utf8.Valid(data) && !bytes.HasPrefix(data, []byte(strings.TrimSuffix(before, "\n"))) {
			t.Errorf("%q does not begin as %q", text.Bytes(), data)
		}
	})
}

func pieceOf(t *testing.T, folder, name string, content []byte) piece {
	must(t, os.WriteFile(filepath.Join(folder, name), content, 0o644))
	file, err := os.Open(filepath.Join(folder, name))
	must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return piece{file, int64(len(content))}
}

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
		"...", " ", "-rf", strings.Repeat("n", 255), "é", "pax=1", "A", "\xed\xa0\x80", "a-", strings.Repeat("ü", 60),
	}
	fuzzTargets = []string{
		"a", "..", "../..", "../outside", "/etc", ".", "a/b", "../a", "securebench/x", "b/../../c", "c/..", "kept/inner",
		strings.Repeat("x", 200), "\xff", "a/../a/../..", "../workspace/a", "//", "./a/", "answer.txt", "ü",
	}
	fuzzContents = []string{"", "text", "\xff\xfe", "nul\x00", "é", strings.Repeat("x", 300), strings.Repeat("y", 5000)}
	fuzzPaths    = []string{"answer.txt", "a/b", "kept/inner", "a", "b/c/answer.txt"}
)

func (d *decisions) name() string {
	number := int(d.next())
	if number < len(fuzzNames) {
		return fuzzNames[number]
	}
	if number == '/' || number == 0 {
		return "slash"
	}
	return string([]byte{byte(number)})
}

// path names an entry of a tree on whose way no link is, or nothing: what is made lies in the tree.
func (d *decisions) path(root string) string {
	parent := root
	for range d.next() % 4 {
		parent = filepath.Join(parent, d.name())
		_ = os.Mkdir(parent, 0o755)
		if info, err := os.Lstat(parent); err != nil || !info.IsDir() {
			return ""
		}
	}
	return filepath.Join(parent, d.name())
}

// build makes a tree; what cannot be made is left out, like an agent's failing command.
func (d *decisions) build(root string) {
	for len(d.data) > 0 {
		step, name := d.next(), d.path(root)
		if name == "" {
			continue
		}
		switch step % 12 {
		case 0, 1, 2:
			if _, err := os.Lstat(name); err != nil {
				_ = os.WriteFile(name, []byte(fuzzContents[int(d.next())%len(fuzzContents)]), 0o644)
			}
		case 3, 4, 5:
			_ = os.Symlink(fuzzTargets[int(d.next())%len(fuzzTargets)], name)
		case 6:
			_ = os.Mkdir(name, 0o755)
		case 7:
			if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
				_ = os.Chmod(name, os.FileMode(d.next()&0o77)|0o400)
			}
		case 8:
			if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
				_ = os.Truncate(name, 1<<(d.next()%40))
			}
		case 9:
			_ = os.MkdirAll(name+strings.Repeat("/d", int(d.next())+20), 0o755)
		case 10:
			_ = unix.Mkfifo(name, 0o644)
		default:
			_ = os.Link(filepath.Join(filepath.Dir(root), "outside/secret"), name)
		}
	}
}

// FuzzSeal: whatever an agent left, sealing changes nothing else, twice gives the same, and an archive holds
// clean names, plain kinds and the bytes of the tree.
func FuzzSeal(f *testing.F) {
	for _, seed := range [][]byte{
		{0, 0, 1, 0, 1, 1}, {0, 3, 0, 0, 3, 4, 0, 1, 1, 9}, {1, 0, 0, 7, 1, 3, 0, 7, 2}, {2, 0, 1, 0, 1, 4},
		{0, 9, 0, 0, 250, 8, 0, 1, 30, 10, 0, 2, 11, 0, 0}, {3, 4, 0, 5, 3, 0, 1, 5, 6, 1}, {0, 6, 0, 0, 0, 1, 0, 1, 1, 6, 0, 19, 0, 0, 20},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := couriersVolumes(t)
		replace(t, &fsync, func(func(int) error) func(int) error { return func(int) error { return nil } })
		must(t, os.Remove(in("workspace/out")))
		writeAt(t, in("outside/secret"), "secret of another")
		made := &decisions{data}
		extraction := testTree
		if number := int(made.next()) % (len(fuzzPaths) + 1); number > 0 {
			extraction = `{"mode":"file","path":"` + fuzzPaths[number-1] + `","kind":"code"}`
		}
		made.build(in("workspace"))
		spec := strings.Replace(sealSpec(extraction), `["securebench"]`, `["task.json","kept/inner"]`, 1)
		code, message, text := sealing(t, spec)
		must(t, os.Remove(in("producer/sealed.json")))
		if _, _, again := sealing(t, spec); code != codeDone || again != text {
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
		if !utf8.Valid(content) || bytes.Contains(content, []byte{0}) || len(content) > 100 {
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
		names = append(names, name)
		if !isCleanRelative(name) || name == "task.json" || strings.HasPrefix(name, "task.json/") || name == "kept/inner" {
			t.Errorf("%q crossed", name)
		}
		source := filepath.Join(workspace, name)
		real, err := filepath.EvalSymlinks(filepath.Dir(source))
		if err != nil || real != filepath.Dir(source) {
			t.Errorf("%q is reached by a link: %s, %v", name, real, err)
		}
		checkEntry(t, source, name, header, reader)
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%q are not in order", names)
	}
}

func checkEntry(t *testing.T, source, name string, header *tar.Header, content io.Reader) {
	switch header.Typeflag {
	case tar.TypeReg:
		got, err := io.ReadAll(content)
		must(t, err)
		if want, err := os.ReadFile(source); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q holds %q instead of %q", name, got, want)
		}
		if header.Mode != programMode && header.Mode != plainMode {
			t.Errorf("%q has mode %o", name, header.Mode)
		}
	case tar.TypeSymlink:
		if target, err := os.Readlink(source); err != nil || target != header.Linkname || !staysInside(name, target) {
			t.Errorf("%q leads to %q", name, header.Linkname)
		}
	case tar.TypeDir:
		if info, err := os.Lstat(source); err != nil || !info.IsDir() {
			t.Errorf("%q is no folder: %v", name, err)
		}
	default:
		t.Errorf("%q has type %q", name, header.Typeflag)
	}
}
