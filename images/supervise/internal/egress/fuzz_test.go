package egress

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/specs"
)

// FuzzPreface: whatever the token's file holds, the gateway gets one line of three words, or nothing.
func FuzzPreface(f *testing.F) {
	for _, seed := range []string{"first.token\n", "", "a b", "a\nb", "t\xc3\xb6ken", strings.Repeat("t", prefaceBytes)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		line, err := prefaceLine(specs.RouteProxy, content)
		if err != nil {
			return
		}
		words := strings.Split(string(line), " ")
		if len(words) != 3 || len(line) > prefaceBytes || bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Errorf("%q became %q", content, line)
		}
	})
}

// pieces is the gateway's end of a connection; it comes in pieces of a size.
type pieces struct {
	content *bytes.Reader
	size    int
}

func (p pieces) Read(buffer []byte) (int, error) {
	return p.content.Read(buffer[:min(p.size, len(buffer))])
}

func (p pieces) Write(data []byte) (int, error) { return len(data), nil }

// FuzzReply: however the gateway's bytes are cut, what it says means the same, and what follows its OK
// is the agent's, whole. A reason holds no sign that moves a terminal's cursor.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		"OK\n", "OK\nHTTP/1.1 200 OK\r\n\r\n", "NO closed\n", "NO \x1b[2J\n", "NO", "HTTP/1.1 200\n",
		"NO " + strings.Repeat("x", replyBytes) + "\n", strings.Repeat("x", chunk+1),
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, content []byte, size int) {
		whole, err := exchange(pieces{bytes.NewReader(content), chunk}, nil, make([]byte, chunk))
		size = max(1, size)
		rest, again := exchange(pieces{bytes.NewReader(content), size}, nil, make([]byte, chunk))
		if !errors.Is(again, err) && !reflect.DeepEqual(again, err) {
			t.Fatalf("%q: %v in pieces of %d, %v else", content, again, size, err)
		}
		if err == nil && (!bytes.HasPrefix(content, []byte(replyOK)) || !bytes.HasPrefix(whole, rest)) {
			t.Errorf("%q: accepted, %q and %q follow", content, whole, rest)
		}
		if err == nil && !bytes.HasPrefix(content[len(replyOK):], whole) {
			t.Errorf("%q: %q follows", content, whole)
		}
		var refused refusedError
		if errors.As(err, &refused) && (len(refused) > replyBytes || strings.ContainsFunc(string(refused), isControl)) {
			t.Errorf("%q: refused for %q", content, refused)
		}
	})
}

func isControl(sign rune) bool { return sign < ' ' || sign > '~' }
