package courier

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"securebench.dev/supervise/internal/specs"
)

// FuzzDecodeCourier: what is accepted keeps the rules on paths and bounds.
func FuzzDecodeCourier(f *testing.F) {
	collect := `{"version":1,"limits":` + testLimits + `}`
	for _, seed := range []string{
		collect, sealSpec(testFile), sealSpec(testTree), collect + collect, strings.ToUpper(collect), "null", "\ufeff" + collect,
		strings.Replace(sealSpec(testFile), "answer", `\ud800`, 1), strings.Replace(collect, "100", "1e400", 1),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		task, err := specs.Read[specs.Courier](text)
		if err != nil {
			return
		}
		if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
			t.Errorf("%q is accepted", text)
		}
		names := task.Folders
		if task.Seal != nil {
			names = task.Seal.Exclude
		}
		for _, name := range names {
			if filepath.Clean("/"+name) != "/"+name {
				t.Errorf("path %q", name)
			}
		}
		if task.Seal != nil && task.Seal.Extraction.Mode == specs.FromFile && filepath.Clean("/"+*task.Seal.Extraction.Path) != "/"+*task.Seal.Extraction.Path {
			t.Errorf("path %q", *task.Seal.Extraction.Path)
		}
		bounds := task.Limits
		if min(bounds.PatchBytes, bounds.StreamBytes, bounds.TextBytes, bounds.WorkspaceBytes, bounds.WorkspaceFiles) < 0 {
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
