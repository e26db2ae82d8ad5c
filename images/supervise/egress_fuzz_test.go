package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// FuzzDecodeEgress: what is accepted says the same when it is written and read again, and names an
// address, ports and routes that the sidecar may have.
func FuzzDecodeEgress(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"gateway":{"host":"10.96.7.7","port":8443},"token":"/t","listen":{"proxy":8080,"provider":8081},` +
			`"connections":128,"start_seconds":60,"close_seconds":20}`,
		`{"version":1,"gateway":{"host":"::1","port":1},"token":"/t","listen":{"close":1},"connections":1,"start_seconds":1e-9,"close_seconds":1e308}`,
		`{}`, `null`, `{"listen":{"proxy":1,"proxy":2}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := decodeEgress(text)
		if err != nil {
			return
		}
		for route, port := range spec.Listen {
			if route == routeClose || !isPort(port) {
				t.Errorf("route %q at port %d is accepted", route, port)
			}
		}
		if duration(spec.StartSeconds) < 0 || duration(spec.CloseSeconds) < 0 {
			t.Errorf("%v and %v seconds are accepted", spec.StartSeconds, spec.CloseSeconds)
		}
		written, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeEgress(string(written)); err != nil || !reflect.DeepEqual(again, spec) {
			t.Errorf("%s became %+v, %v", written, again, err)
		}
	})
}

// FuzzPreface: whatever the token's file holds, the gateway gets one line of three words, or nothing.
func FuzzPreface(f *testing.F) {
	for _, seed := range []string{"first.token\n", "", "a b", "a\nb", "t\xc3\xb6ken", strings.Repeat("t", prefaceBytes)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		line, err := prefaceLine(routeProxy, content)
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
		"NO " + strings.Repeat("x", replyBytes) + "\n", strings.Repeat("x", egressChunk+1),
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, content []byte, size int) {
		whole, err := exchange(pieces{bytes.NewReader(content), egressChunk}, nil, make([]byte, egressChunk))
		size = max(1, size)
		rest, again := exchange(pieces{bytes.NewReader(content), size}, nil, make([]byte, egressChunk))
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
