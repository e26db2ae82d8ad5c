package egress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"securebench.dev/supervise/internal/fixtures"
	"securebench.dev/supervise/internal/specs"
)

func TestBytesGoBothWaysBehindOneLine(t *testing.T) {
	data := make([]byte, 300_000)
	_, _ = rand.Read(data)
	for _, route := range []string{specs.RouteProxy, specs.RouteProvider} {
		gateway := newGateway(t, "127.0.0.1:0", echo)
		sidecar := newPod(t, gateway.port()).carries()
		if sidecar.exchange(route, string(data)) != string(data) {
			t.Errorf("%s: other bytes came back", route)
		}
		if want := []string{"SB1 " + route + " first.token\n"}; !slices.Equal(gateway.heard(), want) {
			t.Errorf("%s: the gateway heard %q", route, gateway.heard())
		}
	}
}

func TestBytesRightBehindTheReply(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	gateway.answers("OK\nbanner")
	sidecar := newPod(t, gateway.port()).carries()
	connection := sidecar.connect(specs.RouteProxy)
	send(t, connection, "x")
	receive(t, connection, "banner")
}

func TestTokenIsReadForEachConnection(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	sidecar := newPod(t, gateway.port()).carries()
	sidecar.exchange(specs.RouteProxy, "a")
	sidecar.renew("second.token")
	sidecar.exchange(specs.RouteProxy, "b")
	if want := []string{"SB1 proxy first.token\n", "SB1 proxy second.token\n"}; !slices.Equal(gateway.heard(), want) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
}

func TestEndOfTheAgentsBytesLeavesTheAnswerOpen(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", func(connection *net.TCPConn, reader io.Reader) {
		all, _ := io.ReadAll(reader)
		_, _ = fmt.Fprintf(connection, "got %s", all)
	})
	if got := newPod(t, gateway.port()).carries().exchange(specs.RouteProxy, "all of it"); got != "got all of it" {
		t.Errorf("the agent got %q", got)
	}
}

func TestEndOfTheAnswerLeavesTheAgentsBytesOpen(t *testing.T) {
	received := make(chan string, 1)
	gateway := newGateway(t, "127.0.0.1:0", func(connection *net.TCPConn, reader io.Reader) {
		_, _ = io.WriteString(connection, "short")
		_ = connection.CloseWrite()
		all, _ := io.ReadAll(reader)
		received <- string(all)
	})
	connection := newPod(t, gateway.port()).carries().connect(specs.RouteProxy)
	send(t, connection, "one")
	receive(t, connection, "short")
	if count, err := connection.Read(make([]byte, 1)); count != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("%d bytes, %v behind the answer", count, err)
	}
	send(t, connection, "two")
	_ = connection.Close()
	if got := <-received; got != "onetwo" {
		t.Errorf("the gateway got %q", got)
	}
}

func TestCutAnswerIsNoWholeAnswer(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", func(connection *net.TCPConn, reader io.Reader) {
		buffer := make([]byte, 1)
		_, _ = reader.Read(buffer)
		_, _ = io.WriteString(connection, "half")
		_, _ = reader.Read(buffer)
		reset(connection)
	})
	sidecar := newPod(t, gateway.port()).carries()
	connection := sidecar.connect(specs.RouteProxy)
	send(t, connection, "a")
	receive(t, connection, "half")
	send(t, connection, "b")
	if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the agent saw %v", err)
	}
	sidecar.logs("egress-proxy: proxy: broken: connection reset by peer\n")
}

func TestCutRequestIsSeenByTheGateway(t *testing.T) {
	seen := make(chan error, 1)
	gateway := newGateway(t, "127.0.0.1:0", func(connection *net.TCPConn, reader io.Reader) {
		_, _ = io.WriteString(connection, "x")
		_, err := io.Copy(io.Discard, reader)
		seen <- err
	})
	connection := newPod(t, gateway.port()).carries().connect(specs.RouteProxy)
	send(t, connection, "half")
	receive(t, connection, "x")
	reset(connection)
	if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the gateway saw %v", err)
	}
}

func TestAgentThatDoesNotReadStopsTheGateway(t *testing.T) {
	const pieces, piece = 1024, 64 << 10
	var sent atomic.Int64
	gateway := newGateway(t, "127.0.0.1:0", func(connection *net.TCPConn, reader io.Reader) {
		_, _ = io.ReadFull(reader, make([]byte, len("go")))
		for range pieces {
			count, err := connection.Write(make([]byte, piece))
			sent.Add(int64(count))
			if err != nil {
				return
			}
		}
	})
	connection := newPod(t, gateway.port()).carries().connect(specs.RouteProxy)
	_ = connection.SetReadBuffer(piece)
	send(t, connection, "go")
	for before := int64(-1); sent.Load() != before; time.Sleep(200 * time.Millisecond) {
		before = sent.Load()
	}
	if stopped := sent.Load(); stopped == 0 || stopped >= pieces*piece/2 {
		t.Errorf("the gateway stopped at %d bytes", stopped)
	}
	if count, err := io.Copy(io.Discard, connection); err != nil || count != pieces*piece {
		t.Errorf("%d bytes came, %v", count, err)
	}
}

func TestNothingIsSentOnBeforeTheFirstByte(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	sidecar := newPod(t, gateway.port()).carries()
	if got := sidecar.exchange(specs.RouteProxy, ""); got != "" {
		t.Errorf("the agent got %q", got)
	}
	sidecar.logs("egress-proxy: proxy: nothing was sent\n")
	impatient := newPod(t, gateway.port())
	impatient.sidecar.bounds.first = 20 * time.Millisecond
	if _, err := impatient.carries().connect(specs.RouteProxy).Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle agent saw %v", err)
	}
	if heard := gateway.heard(); len(heard) != 0 {
		t.Errorf("the gateway heard %q", heard)
	}
}

func TestRefusalIsAnAnswer(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	gateway.answers("NO closed\x1b\xff\n")
	sidecar := newPod(t, gateway.port()).carries()
	answer := sidecar.exchange(specs.RouteProxy, "CONNECT a.test:443 HTTP/1.1\r\n\r\n"+strings.Repeat("x", 100_000))
	want := "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 43\r\nConnection: close\r\n\r\n" +
		"securebench: the gateway refused: closed??\n"
	if answer != want {
		t.Errorf("the agent got %q", answer)
	}
	sidecar.logs("egress-proxy: proxy: refused: closed??\n")
	sidecar.missed(false)
}

func TestAgentMaySendOnAfterARefusal(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	gateway.answers("NO closed\n")
	connection := newPod(t, gateway.port()).carries().connect(specs.RouteProxy)
	send(t, connection, "x")
	if answer, err := io.ReadAll(connection); err != nil || !strings.Contains(string(answer), "the gateway refused") {
		t.Fatalf("the agent got %q, %v", answer, err)
	}
	for range 3 {
		send(t, connection, strings.Repeat("x", 1000))
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAgentThatSendsForEverAfterARefusalIsEnded(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	gateway.answers("NO closed\n")
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.bounds.drain = 50 * time.Millisecond
	connection := sidecar.carries().connect(specs.RouteProxy)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if _, err := io.WriteString(connection, "x"); err != nil {
			return
		}
	}
	t.Error("it goes on")
}

func TestGatewayThatSpeaksOtherwiseIsUnreachable(t *testing.T) {
	for reply, want := range map[string]string{
		closing:                                 errNoReply.Error(),
		"HTTP/1.1 200\n":                        errOtherReply.Error(),
		"NO " + strings.Repeat("x", 600) + "\n": errOtherReply.Error(),
		strings.Repeat("x", 40_000):             errNoReply.Error(),
	} {
		gateway := newGateway(t, "127.0.0.1:0", echo)
		gateway.answers(reply)
		sidecar := newPod(t, gateway.port()).carries()
		answer := sidecar.exchange(specs.RouteProxy, "GET / HTTP/1.1\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 502 Bad Gateway\r\n") || !strings.Contains(answer, want) {
			t.Errorf("%.20q: the agent got %q", reply, answer)
		}
		sidecar.missed(false)
	}
}

func TestGatewayThatIsDownIsMissed(t *testing.T) {
	sidecar := newPod(t, portOf(t, fixtures.FreeAddress(t)))
	sidecar.sidecar.bounds.absent = 100 * time.Millisecond
	answer := sidecar.carries().exchange(specs.RouteProxy, "GET / HTTP/1.1\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 502 Bad Gateway\r\n") ||
		!strings.Contains(answer, "securebench: the gateway cannot be reached: ") {
		t.Errorf("the agent got %q", answer)
	}
	sidecar.missed(true)
}

func TestGatewayThatComesBackInTimeIsNotMissed(t *testing.T) {
	for reply, want := range map[string]string{replyOK: "x", "NO closed\n": "HTTP/1.1 403"} {
		address := fixtures.FreeAddress(t)
		sidecar := newPod(t, portOf(t, address)).carries()
		answer := make(chan string, 1)
		connection := sidecar.connect(specs.RouteProxy)
		send(t, connection, "x")
		_ = connection.CloseWrite()
		go func() {
			all, _ := io.ReadAll(connection)
			answer <- string(all)
		}()
		time.Sleep(100 * time.Millisecond)
		newGateway(t, address, echo).answers(reply)
		if got := <-answer; !strings.HasPrefix(got, want) {
			t.Errorf("%q: the agent got %q", reply, got)
		}
		sidecar.missed(false)
	}
}

func TestGatewayThatComesBackSilentIsMissed(t *testing.T) {
	sidecar := newPod(t, portOf(t, fixtures.FreeAddress(t)))
	sidecar.sidecar.bounds.retry = 10 * time.Millisecond
	connect, tries := sidecar.sidecar.connect, 0
	sidecar.sidecar.connect = func(ctx context.Context) (net.Conn, error) {
		if tries++; tries > 1 {
			return nil, os.NewSyscallError("connect", syscall.ETIMEDOUT)
		}
		return connect(ctx)
	}
	sidecar.carries().exchange(specs.RouteProxy, "x")
	sidecar.missed(true)
}

func TestAgentThatEndsBeforeTheGatewayComesBackMissedIt(t *testing.T) {
	sidecar := newPod(t, portOf(t, fixtures.FreeAddress(t)))
	tried := make(chan struct{}, 100)
	connect := sidecar.sidecar.connect
	sidecar.sidecar.connect = func(ctx context.Context) (net.Conn, error) {
		defer func() { tried <- struct{}{} }()
		return connect(ctx)
	}
	send(t, sidecar.carries().connect(specs.RouteProxy), "x")
	<-tried
	<-tried
	sidecar.missed(true)
}

func TestWhatAnAgentCanBringAboutIsNotMissed(t *testing.T) {
	for _, number := range []syscall.Errno{
		syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENOBUFS, syscall.ETIMEDOUT, syscall.ECONNRESET,
	} {
		sidecar := newPod(t, portOf(t, fixtures.FreeAddress(t)))
		sidecar.sidecar.connect = func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", number)}
		}
		answer := sidecar.carries().exchange(specs.RouteProxy, "x")
		if !strings.Contains(answer, "the gateway cannot be reached") {
			t.Errorf("%v: the agent got %q", number, answer)
		}
		sidecar.missed(false)
	}
}

func TestGatewayThatIsSilentIsUnreachable(t *testing.T) {
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	sidecar := newPod(t, portOf(t, silent.Addr().String()))
	sidecar.sidecar.bounds.reply = 50 * time.Millisecond
	answer := sidecar.carries().exchange(specs.RouteProxy, "GET / HTTP/1.1\r\n\r\n")
	if !strings.Contains(answer, "no answer within 0.05 seconds") {
		t.Errorf("the agent got %q", answer)
	}
	sidecar.missed(false)
}

func TestWithoutAGoodTokenNothingIsSent(t *testing.T) {
	for name, content := range map[string]string{
		"long": strings.Repeat("t", 9000), "longer than is read": strings.Repeat("t", 3*prefaceBytes),
		"foreign": "töken", "empty": "\n", "two lines": "one\ntwo",
	} {
		gateway := newGateway(t, "127.0.0.1:0", echo)
		sidecar := newPod(t, gateway.port())
		sidecar.renew(content)
		answer := sidecar.carries().exchange(specs.RouteProxy, "GET / HTTP/1.1\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 502 Bad Gateway\r\n") || len(gateway.heard()) != 0 {
			t.Errorf("%s: the agent got %q, the gateway heard %q", name, answer, gateway.heard())
		}
		sidecar.missed(false)
	}
	gateway := newGateway(t, "127.0.0.1:0", echo)
	sidecar := newPod(t, gateway.port())
	_ = os.Remove(sidecar.token)
	if answer := sidecar.carries().exchange(specs.RouteProxy, "x"); !strings.HasPrefix(answer, "HTTP/1.1 502") {
		t.Errorf("without a token the agent got %q", answer)
	}
	sidecar.missed(false)
}

func TestOnlySoManyConnectionsAreOpen(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	sidecar := newPod(t, gateway.port()).carries()
	var held []*net.TCPConn
	for range 4 {
		connection := sidecar.connect(specs.RouteProxy)
		send(t, connection, "x")
		receive(t, connection, "x")
		held = append(held, connection)
	}
	if answer := sidecar.exchange(specs.RouteProxy, "y"); !strings.HasPrefix(answer, "HTTP/1.1 503 Service Unavailable\r\n") {
		t.Errorf("one more connection got %q", answer)
	}
	if count := len(gateway.heard()); count != 4 {
		t.Errorf("the gateway got %d connections", count)
	}
	_ = held[0].Close()
	until(t, func() bool { return sidecar.carrier.open.Load() == 3 })
	if answer := sidecar.exchange(specs.RouteProxy, "z"); answer != "z" {
		t.Errorf("the next connection got %q", answer)
	}
	sidecar.missed(false)
}

func TestFloodOfConnectionsIsCutWithoutAnAnswer(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.bounds.drain = time.Minute
	sidecar.carries()
	for range 4 {
		sidecar.connect(specs.RouteProxy)
	}
	for range 4 {
		receive(t, sidecar.connect(specs.RouteProxy), "HTTP/1.1 503")
	}
	// The connection may be cut as early as the dial.
	if surplus, err := net.Dial("tcp4", sidecar.carrier.listeners[specs.RouteProvider].Addr().String()); err == nil {
		if answer, _ := io.ReadAll(surplus); len(answer) != 0 {
			t.Errorf("one above twice the limit got %q", answer)
		}
	}
	sidecar.missed(false)
}

func TestLinesOfTheLogAreBounded(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.bounds.lines = 2
	sidecar.carries()
	for number := range int64(5) {
		sidecar.exchange(specs.RouteProxy, "secret of the agent")
		until(t, func() bool { return sidecar.carrier.lines.Load() == number+1 })
	}
	sidecar.missed(false)
	line := "egress-proxy: proxy: done, 19 bytes up, 19 bytes down\n"
	if got := sidecar.log.String(); got != line+line+"egress-proxy: further connections are not listed\n" {
		t.Errorf("the log is %q", got)
	}
}
