package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	// chunk is read at once and buffered of each direction before the sender has to wait.
	chunk = 16 << 10
	// replyBytes is the longest first line of the gateway.
	replyBytes = 512
)

// The first lines of a connection (operator/securebench/protocol/gateway.py).
const (
	prefaceMagic = "SB1"
	prefaceBytes = 8192
	replyOK      = "OK\n"
	replyNo      = "NO "
)

var (
	errTokenLong  = errors.New("the token is too long")
	errTokenWord  = errors.New("the token is no word of ASCII")
	errNoReply    = errors.New("it closed the connection before its answer")
	errOtherReply = errors.New("its answer is of another version")
)

// refusedError is the gateway's no, with its reason.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// absentError means that nothing takes connections at the gateway's address. Every other error says
// that the gateway did not answer as it should.
type absentError struct{ error }

// gatewayStream is a connection that the gateway has accepted, with what it sent behind its answer;
// rest lies in the buffer of the dial.
type gatewayStream struct {
	connection *net.TCPConn
	rest       []byte
}

// dial returns a connection that the gateway has accepted for a route.
func (s *sidecar) dial(ctx context.Context, route string, buffer []byte) (gatewayStream, error) {
	preface, err := prefaceOf(route, s.spec.Token)
	if err != nil {
		return gatewayStream{}, err
	}
	deadline := time.Now().Add(s.bounds.reply)
	stream, err := s.introduce(ctx, deadline, preface, buffer)
	if isSlow(err) && !time.Now().Before(deadline) {
		err = fmt.Errorf("no answer within %g seconds", s.bounds.reply.Seconds())
	}
	return stream, err
}

// introduce connects, sends the first line and reads the gateway's.
func (s *sidecar) introduce(
	ctx context.Context, deadline time.Time, preface, buffer []byte,
) (gatewayStream, error) {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	raw, err := s.connect(limited)
	if err != nil {
		return gatewayStream{}, classified(err)
	}
	connection := raw.(*net.TCPConn)
	_ = connection.SetDeadline(deadline)
	unwatch := context.AfterFunc(ctx, func() { reset(connection) })
	rest, err := exchange(connection, preface, buffer)
	if !unwatch() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		reset(connection)
		return gatewayStream{}, err
	}
	_ = connection.SetDeadline(time.Time{})
	return gatewayStream{connection, rest}, nil
}

// classified tells an address at which nothing listens, or to which there is no way, from the rest.
//
// Silence is none of them: an agent fills the gateway's queue by connections of its own. Nor are errors
// of this machine, whose ports and descriptors it can use up.
func classified(err error) error {
	for _, number := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, number) {
			return absentError{err}
		}
	}
	return err
}

// prefaceOf is the sidecar's first line; the token is read anew for each connection.
func prefaceOf(route, token string) ([]byte, error) {
	file, err := os.Open(token)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, 2*prefaceBytes))
	if err != nil {
		return nil, err
	}
	return prefaceLine(route, content)
}

func prefaceLine(route string, content []byte) ([]byte, error) {
	word := strings.TrimSpace(string(content))
	if word == "" || strings.ContainsFunc(word, func(sign rune) bool { return sign <= ' ' || sign > '~' }) {
		return nil, errTokenWord
	}
	line := prefaceMagic + " " + route + " " + word + "\n"
	if len(line) > prefaceBytes {
		return nil, errTokenLong
	}
	return []byte(line), nil
}

// exchange sends the first line and returns what follows the gateway's OK.
func exchange(connection io.ReadWriter, preface, buffer []byte) ([]byte, error) {
	if _, err := connection.Write(preface); err != nil {
		return nil, err
	}
	for filled := 0; ; {
		count, err := connection.Read(buffer[filled:])
		filled += count
		if end := bytes.IndexByte(buffer[:filled], '\n'); end >= 0 {
			return buffer[end+1 : filled], verdictOf(buffer[:end+1])
		}
		if errors.Is(err, io.EOF) || filled == len(buffer) {
			return nil, errNoReply
		}
		if err != nil {
			return nil, err
		}
	}
}

// verdictOf reads the gateway's first line.
func verdictOf(line []byte) error {
	if string(line) == replyOK {
		return nil
	}
	reason, refused := bytes.CutPrefix(line, []byte(replyNo))
	if !refused || len(line) > replyBytes {
		return errOtherReply
	}
	return refusedError(printable(string(bytes.TrimSpace(reason))))
}

// printable replaces what is no visible sign of ASCII.
func printable(text string) string {
	return strings.Map(func(sign rune) rune {
		if sign < ' ' || sign > '~' {
			return '?'
		}
		return sign
	}, text)
}

// isSlow tells whether an error is that of time that is over.
func isSlow(err error) bool {
	var slow net.Error
	return errors.As(err, &slow) && slow.Timeout()
}

// reset closes at once, so that a cut answer is not taken for a whole one.
func reset(connection *net.TCPConn) {
	_ = connection.SetLinger(0)
	_ = connection.Close()
}
