package egress

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"securebench.dev/supervise/internal/specs"
)

// closing, as a reply of the gateway, is none.
const closing = ""

// fakeGateway remembers first lines, answers each by its replies, the last one repeatedly, and then
// behaves.
type fakeGateway struct {
	listener net.Listener
	behave   func(*net.TCPConn, io.Reader)

	lock     sync.Mutex
	replies  []string
	prefaces []string
}

func newGateway(t *testing.T, address string, behave func(*net.TCPConn, io.Reader)) *fakeGateway {
	t.Helper()
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	gateway := &fakeGateway{listener: listener, behave: behave, replies: []string{replyOK}}
	t.Cleanup(gateway.end)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go gateway.serve(connection.(*net.TCPConn))
		}
	}()
	return gateway
}

func (g *fakeGateway) end() { _ = g.listener.Close() }

func (g *fakeGateway) port() int { return g.listener.Addr().(*net.TCPAddr).Port }

func (g *fakeGateway) serve(connection *net.TCPConn) {
	defer connection.Close()
	reader := bufio.NewReader(connection)
	preface, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	reply := g.next(preface)
	_, _ = io.WriteString(connection, reply)
	if reply == replyOK {
		g.behave(connection, reader)
	}
}

func (g *fakeGateway) next(preface string) string {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.prefaces = append(g.prefaces, preface)
	reply := g.replies[0]
	if len(g.replies) > 1 {
		g.replies = g.replies[1:]
	}
	return reply
}

func (g *fakeGateway) answers(replies ...string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.replies = replies
}

func (g *fakeGateway) heard() []string {
	g.lock.Lock()
	defer g.lock.Unlock()
	return append([]string{}, g.prefaces...)
}

func echo(connection *net.TCPConn, reader io.Reader) { _, _ = io.Copy(connection, reader) }

func noBehaviour(*net.TCPConn, io.Reader) {}

// record is a log that tests read while it is written.
type record struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(data []byte) (int, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.text.Write(data)
}

func (r *record) String() string {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.text.String()
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	found, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	return found.Port
}

// pod is a sidecar in this process, with ports that the kernel chose.
type pod struct {
	t       *testing.T
	token   string
	sidecar *sidecar
	carrier *carrier
	log     *record
}

func newPod(t *testing.T, gatewayPort int) *pod {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("first.token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := specs.Egress{
		Version: 1, Gateway: specs.GatewayAddress{Host: "127.0.0.1", Port: gatewayPort}, Token: token,
		Listen: map[string]int{specs.RouteProxy: 0, specs.RouteProvider: 0}, Connections: 4, StartSeconds: 1, CloseSeconds: 1,
	}
	log := &record{}
	return &pod{t: t, token: token, sidecar: newSidecar(spec, usualBounds(), log), log: log}
}

// carries starts to listen; the bounds and the rest of the sidecar are changed before.
func (p *pod) carries() *pod {
	p.t.Helper()
	p.carrier = newCarrier(p.sidecar)
	if err := p.carrier.listen(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.carrier.close)
	return p
}

func (p *pod) connect(route string) *net.TCPConn {
	p.t.Helper()
	return dialled(p.t, p.carrier.listeners[route].Addr().String())
}

func dialled(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	connection, err := net.Dial("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	return connection.(*net.TCPConn)
}

// exchange sends everything and returns all that comes back.
func (p *pod) exchange(route, data string) string {
	p.t.Helper()
	connection := p.connect(route)
	send(p.t, connection, data)
	_ = connection.CloseWrite()
	answer, err := io.ReadAll(connection)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = connection.Close()
	return string(answer)
}

func (p *pod) renew(content string) {
	p.t.Helper()
	if err := os.WriteFile(p.token, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// logs waits until the log holds some text.
func (p *pod) logs(text string) {
	p.t.Helper()
	until(p.t, func() bool { return strings.Contains(p.log.String(), text) })
}

// missed ends the sidecar and compares whether it missed the gateway.
func (p *pod) missed(want bool) {
	p.t.Helper()
	p.carrier.close()
	if got := p.carrier.missed.Load(); got != want {
		p.t.Errorf("the gateway was missed: %v", got)
	}
}

// until polls for what another goroutine brings about.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

func send(t *testing.T, connection net.Conn, data string) {
	t.Helper()
	if _, err := io.WriteString(connection, data); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, connection net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(connection, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v instead of %q", got, err, want)
	}
}
