package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestClosingIsRepeatedUntilTheGatewaySaysOK(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", noBehaviour)
	gateway.answers(closing, "NO busy\n", replyOK)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.CloseSeconds = 20
	if !sidecar.sidecar.closeLaunch() {
		t.Error("the launch is not closed")
	}
	if want := slices.Repeat([]string{"SB1 close first.token\n"}, 3); !slices.Equal(gateway.heard(), want) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
	if got := sidecar.log.String(); got != "egress-proxy: the gateway closed the launch\n" {
		t.Errorf("the log is %q", got)
	}
}

func TestClosingWaitsForAGatewayThatIsReplaced(t *testing.T) {
	address := freeAddress(t)
	sidecar := newPod(t, portOf(t, address))
	sidecar.sidecar.spec.CloseSeconds = 20
	closed := make(chan bool, 1)
	go func() { closed <- sidecar.sidecar.closeLaunch() }()
	time.Sleep(50 * time.Millisecond)
	newGateway(t, address, noBehaviour)
	if !<-closed {
		t.Error("the launch is not closed")
	}
}

func TestClosingEndsWithoutAnAnswer(t *testing.T) {
	refusing := newGateway(t, "127.0.0.1:0", noBehaviour)
	refusing.answers("NO unknown\n")
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for want, port := range map[string]int{
		"unknown": refusing.port(), "no answer": portOf(t, silent.Addr().String()),
	} {
		sidecar := newPod(t, port)
		sidecar.sidecar.spec.CloseSeconds = 0.1
		if sidecar.sidecar.closeLaunch() {
			t.Errorf("%s: the launch is closed", want)
		}
		if got := sidecar.log.String(); got != "egress-proxy: the gateway did not close the launch in time: "+want+"\n" {
			t.Errorf("the log is %q", got)
		}
	}
}

func TestStopCutsTheAgentAndClosesTheLaunch(t *testing.T) {
	for reply, want := range map[string]int{replyOK: codeDone, "NO unknown\n": codeFailed} {
		gateway := newGateway(t, "127.0.0.1:0", echo)
		address := freeAddress(t)
		sidecar := newPod(t, gateway.port())
		sidecar.sidecar.spec.Listen = map[string]int{routeProxy: portOf(t, address)}
		sidecar.sidecar.spec.CloseSeconds = 0.3
		stop, ended := make(chan struct{}), make(chan int, 1)
		go func() { ended <- sidecar.sidecar.serve(stop) }()
		waitOpen([]string{address}, stop)
		connection := dialled(t, address)
		send(t, connection, "x")
		receive(t, connection, "x")
		gateway.answers(reply)
		close(stop)
		if got := <-ended; got != want {
			t.Errorf("%q: exit code %d", reply, got)
		}
		if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: the agent saw %v", reply, err)
		}
		if isOpen(address) {
			t.Errorf("%q: the port is still open", reply)
		}
		heard := gateway.heard()
		closes := slices.Compact(heard[1:])
		if heard[0] != "SB1 proxy first.token\n" || !slices.Equal(closes, []string{"SB1 close first.token\n"}) {
			t.Errorf("%q: the gateway heard %q", reply, heard)
		}
	}
}

func TestLaunchThatMissedTheGatewayFailsThoughItIsClosed(t *testing.T) {
	address, port := freeAddress(t), freeAddress(t)
	gateway := newGateway(t, address, noBehaviour)
	sidecar := newPod(t, portOf(t, address))
	sidecar.sidecar.bounds.absent = 0
	sidecar.sidecar.spec.Listen = map[string]int{routeProxy: portOf(t, port)}
	sidecar.sidecar.spec.CloseSeconds = 20
	stop, ended := make(chan struct{}), make(chan int, 1)
	go func() { ended <- sidecar.sidecar.serve(stop) }()
	waitOpen([]string{port}, stop)
	gateway.end()
	connection := dialled(t, port)
	send(t, connection, "x")
	if answer, err := io.ReadAll(connection); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 502") {
		t.Errorf("the agent got %q, %v", answer, err)
	}
	gateway = newGateway(t, address, noBehaviour)
	close(stop)
	if got := <-ended; got != codeFailed {
		t.Errorf("exit code %d", got)
	}
	if !slices.Equal(gateway.heard(), []string{"SB1 close first.token\n"}) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
	sidecar.logs("the launch does not count")
}

func TestSidecarThatNeverReachesTheGatewayDoesNotListen(t *testing.T) {
	port := freeAddress(t)
	sidecar := newPod(t, portOf(t, freeAddress(t)))
	sidecar.sidecar.spec.Listen = map[string]int{routeProxy: portOf(t, port)}
	sidecar.sidecar.spec.StartSeconds = 0.3
	ended := make(chan int, 1)
	go func() { ended <- sidecar.sidecar.serve(make(chan struct{})) }()
	for {
		select {
		case code := <-ended:
			want := "egress-proxy: the gateway did not accept a connection within 0.3 seconds\n"
			if code != codeFailed || sidecar.log.String() != want {
				t.Errorf("exit code %d, log %q", code, sidecar.log)
			}
			return
		case <-time.After(5 * time.Millisecond):
			if isOpen(port) {
				t.Fatal("it listens")
			}
		}
	}
}

func TestPortThatIsTakenEndsTheSidecar(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", noBehaviour)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.Listen = map[string]int{routeProxy: gateway.port()}
	if code := sidecar.sidecar.serve(make(chan struct{})); code != codeFailed {
		t.Errorf("exit code %d", code)
	}
	sidecar.logs("address already in use")
}

// egressProgram is the sidecar as PID 1 of a namespace of its own.
func egressProgram(t *testing.T, sidecar *pod) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(sidecar.sidecar.spec)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	f.init = true
	command := f.program("egress-proxy", string(text))
	command.Stdout = sidecar.log
	f.start(command)
	return command
}

func TestStopBeforeTheGatewayIsReachedStillClosesTheLaunch(t *testing.T) {
	address := freeAddress(t)
	sidecar := newPod(t, portOf(t, address))
	sidecar.sidecar.spec.StartSeconds, sidecar.sidecar.spec.CloseSeconds = 60, 20
	tried := make(chan struct{}, 100)
	connect := sidecar.sidecar.connect
	sidecar.sidecar.connect = func(ctx context.Context) (net.Conn, error) {
		defer func() { tried <- struct{}{} }()
		return connect(ctx)
	}
	stop, ended := make(chan struct{}), make(chan int, 1)
	go func() { ended <- sidecar.sidecar.serve(stop) }()
	<-tried
	close(stop)
	<-tried
	gateway := newGateway(t, address, noBehaviour)
	if code := <-ended; code != codeDone {
		t.Errorf("exit code %d, log %q", code, sidecar.log)
	}
	if !slices.Equal(gateway.heard(), []string{"SB1 close first.token\n"}) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
}

func TestSignalEndsTheProgram(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	address := freeAddress(t)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.Listen = map[string]int{routeProxy: portOf(t, address)}
	command := egressProgram(t, sidecar)
	waitOpen([]string{address}, nil)
	connection := dialled(t, address)
	send(t, connection, "x")
	receive(t, connection, "x")
	// What is no stop signal ends nothing.
	for _, number := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGTERM} {
		_ = command.Process.Signal(number)
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != codeDone {
		t.Errorf("exit code %d", code)
	}
	if want := "egress-proxy: the gateway closed the launch\n"; !strings.HasSuffix(sidecar.log.String(), want) {
		t.Errorf("the log is %q", sidecar.log)
	}
	if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the agent saw %v", err)
	}
}

func egressFields() map[string]any {
	return map[string]any{
		"version": 1, "gateway": map[string]any{"host": "10.96.7.7", "port": 8443},
		"token": "/work/token/token", "listen": map[string]any{"proxy": 8080},
		"connections": 128, "start_seconds": 60, "close_seconds": 20,
	}
}

func encoded(t *testing.T, fields map[string]any) string {
	t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEgressSpecification(t *testing.T) {
	want := egressSpec{
		Version: 1, Gateway: egressGateway{"10.96.7.7", 8443}, Token: "/work/token/token",
		Listen: map[string]int{routeProxy: 8080}, Connections: 128, StartSeconds: 60, CloseSeconds: 20,
	}
	if got, err := decodeEgress(encoded(t, egressFields())); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]map[string]any{
		"version":       {"version": 2},
		"unknown field": {"more": 1},
		"no port":       {"gateway": map[string]any{"host": "10.96.7.7"}},
		"a name":        {"gateway": map[string]any{"host": "gateway", "port": 8443}},
		"no token":      {"token": ""},
		"relative":      {"token": "token"},
		"route":         {"listen": map[string]any{"tunnel": 1}},
		"closing":       {"listen": map[string]any{"close": 8080}},
		"large port":    {"listen": map[string]any{"proxy": 1 << 16}},
		"no route":      {"listen": map[string]any{}},
		"no map":        {"listen": 8080},
		"word":          {"connections": "many"},
		"none":          {"connections": 0},
		"no time":       {"start_seconds": 0},
		"negative":      {"close_seconds": -1},
	} {
		fields := egressFields()
		maps.Copy(fields, change)
		if _, err := decodeEgress(encoded(t, fields)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if code := execute([]string{"supervise", "egress-proxy", "--spec", "{}"}, ""); code != codeOwnFault {
		t.Errorf("exit code %d", code)
	}
	for name := range egressFields() {
		fields := egressFields()
		delete(fields, name)
		if _, err := decodeEgress(encoded(t, fields)); err == nil {
			t.Errorf("accepted without %s", name)
		}
	}
}
