package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"securebench.dev/supervise/internal/cgroup"
	"securebench.dev/supervise/internal/fixtures"
	"securebench.dev/supervise/internal/network"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
)

func TestClosingIsRepeatedUntilTheGatewaySaysOK(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", noBehaviour)
	gateway.answers(closing, "NO busy\n", replyOK)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.CloseSeconds = 20
	if err := sidecar.sidecar.closeLaunch(); err != nil {
		t.Error(err)
	}
	if want := slices.Repeat([]string{"SB1 close first.token\n"}, 3); !slices.Equal(gateway.heard(), want) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
	if got := sidecar.log.String(); got != "egress-proxy: the gateway closed the launch\n" {
		t.Errorf("the log is %q", got)
	}
}

func TestClosingWaitsForAGatewayThatIsReplaced(t *testing.T) {
	address := fixtures.FreeAddress(t)
	sidecar := newPod(t, portOf(t, address))
	sidecar.sidecar.spec.CloseSeconds = 20
	closed := make(chan error, 1)
	go func() { closed <- sidecar.sidecar.closeLaunch() }()
	time.Sleep(50 * time.Millisecond)
	newGateway(t, address, noBehaviour)
	if err := <-closed; err != nil {
		t.Error(err)
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
		err := sidecar.sidecar.closeLaunch()
		if err == nil || err.Error() != "the gateway did not close the launch in time: "+want {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestStopCutsTheAgentAndClosesTheLaunch(t *testing.T) {
	for reply, closes := range map[string]bool{replyOK: true, "NO unknown\n": false} {
		gateway := newGateway(t, "127.0.0.1:0", echo)
		address := fixtures.FreeAddress(t)
		sidecar := newPod(t, gateway.port())
		sidecar.sidecar.spec.Listen = map[string]int{specs.RouteProxy: portOf(t, address)}
		sidecar.sidecar.spec.CloseSeconds = 0.3
		stop, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- sidecar.sidecar.serve(stop) }()
		network.WaitOpen([]string{address}, stop)
		connection := dialled(t, address)
		send(t, connection, "x")
		receive(t, connection, "x")
		gateway.answers(reply)
		close(stop)
		if err := <-ended; (err == nil) != closes {
			t.Errorf("%q: got %v", reply, err)
		}
		if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: the agent saw %v", reply, err)
		}
		if network.IsOpen(address) {
			t.Errorf("%q: the port is still open", reply)
		}
		heard := gateway.heard()
		asked := slices.Compact(heard[1:])
		if heard[0] != "SB1 proxy first.token\n" || !slices.Equal(asked, []string{"SB1 close first.token\n"}) {
			t.Errorf("%q: the gateway heard %q", reply, heard)
		}
	}
}

func TestLaunchThatMissedTheGatewayFailsThoughItIsClosed(t *testing.T) {
	address, port := fixtures.FreeAddress(t), fixtures.FreeAddress(t)
	gateway := newGateway(t, address, noBehaviour)
	sidecar := newPod(t, portOf(t, address))
	sidecar.sidecar.bounds.absent = 0
	sidecar.sidecar.spec.Listen = map[string]int{specs.RouteProxy: portOf(t, port)}
	sidecar.sidecar.spec.CloseSeconds = 20
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- sidecar.sidecar.serve(stop) }()
	network.WaitOpen([]string{port}, stop)
	gateway.end()
	connection := dialled(t, port)
	send(t, connection, "x")
	if answer, err := io.ReadAll(connection); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 502") {
		t.Errorf("the agent got %q, %v", answer, err)
	}
	gateway = newGateway(t, address, noBehaviour)
	close(stop)
	if err := <-ended; !errors.Is(err, errMissed) {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(gateway.heard(), []string{"SB1 close first.token\n"}) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
}

func TestSidecarThatNeverReachesTheGatewayDoesNotListen(t *testing.T) {
	port := fixtures.FreeAddress(t)
	sidecar := newPod(t, portOf(t, fixtures.FreeAddress(t)))
	sidecar.sidecar.spec.Listen = map[string]int{specs.RouteProxy: portOf(t, port)}
	sidecar.sidecar.spec.StartSeconds = 0.3
	ended := make(chan error, 1)
	go func() { ended <- sidecar.sidecar.serve(make(chan struct{})) }()
	for {
		select {
		case err := <-ended:
			want := "the gateway did not accept a connection within 0.3 seconds: dial tcp 127.0.0.1:"
			if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("got %v", err)
			}
			return
		case <-time.After(5 * time.Millisecond):
			if network.IsOpen(port) {
				t.Fatal("it listens")
			}
		}
	}
}

func TestPortThatIsTakenEndsTheSidecar(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", noBehaviour)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.Listen = map[string]int{specs.RouteProxy: gateway.port()}
	if err := sidecar.sidecar.serve(make(chan struct{})); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
}

func TestNetworkThatDropsTheFirstTryIsTriedAgain(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", noBehaviour)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.StartSeconds, sidecar.sidecar.bounds.try = 60, 50*time.Millisecond
	connect, tries := sidecar.sidecar.connect, 0
	sidecar.sidecar.connect = func(ctx context.Context) (net.Conn, error) {
		if tries++; tries == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return connect(ctx)
	}
	begun := time.Now()
	if err := sidecar.sidecar.reach(context.Background()); err != nil || time.Since(begun) > 30*time.Second {
		t.Errorf("got %v after %v and %d tries", err, time.Since(begun), tries)
	}
}

func TestMessageSaysWhyTheLaunchDoesNotCount(t *testing.T) {
	port := fixtures.FreeAddress(t)
	sidecar := newPod(t, portOf(t, port))
	sidecar.sidecar.spec.StartSeconds = 0.1
	sidecar.sidecar.spec.Listen = map[string]int{specs.RouteProxy: portOf(t, fixtures.FreeAddress(t))}
	folder := t.TempDir()
	command := egressProgram(t, sidecar, folder)
	_ = command.Wait()
	text, err := os.ReadFile(filepath.Join(folder, messageFile))
	want := `{"v":1,"error":"the gateway did not accept a connection within 0.1 seconds: dial tcp ` + port + `: connect: connection refused"}`
	if code := command.ProcessState.ExitCode(); code != outcome.CodeFailed || err != nil || string(text) != want {
		t.Errorf("exit code %d, message %s, %v", code, text, err)
	}
}

const (
	// helperSpec makes the test binary act as the sidecar that it describes.
	helperSpec = "SUPERVISE_TEST_EGRESS"
	// helperFolder names where it has its termination message and its cgroup.
	helperFolder = "SUPERVISE_TEST_EGRESS_FOLDER"
	messageFile  = "message"
	peakFile     = "memory.peak"
)

func TestMain(m *testing.M) {
	if text, set := os.LookupEnv(helperSpec); set {
		folder := os.Getenv(helperFolder)
		cgroup.MemoryPeaks, cgroup.CpuStats = []string{filepath.Join(folder, peakFile)}, nil
		os.Exit(Proxy(text, filepath.Join(folder, messageFile)))
	}
	os.Exit(m.Run())
}

// egressProgram is the sidecar as PID 1 of a namespace of its own, with files in a folder.
func egressProgram(t *testing.T, sidecar *pod, folder string) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(sidecar.sidecar.spec)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), helperSpec+"="+string(text), helperFolder+"="+folder)
	command.Stdout, command.Stderr = sidecar.log, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if err := command.Start(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("not applicable: no PID namespaces here:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	return command
}

func TestStopBeforeTheGatewayIsReachedStillClosesTheLaunch(t *testing.T) {
	address := fixtures.FreeAddress(t)
	sidecar := newPod(t, portOf(t, address))
	sidecar.sidecar.spec.StartSeconds, sidecar.sidecar.spec.CloseSeconds = 60, 20
	tried := make(chan struct{}, 100)
	connect := sidecar.sidecar.connect
	sidecar.sidecar.connect = func(ctx context.Context) (net.Conn, error) {
		defer func() { tried <- struct{}{} }()
		return connect(ctx)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- sidecar.sidecar.serve(stop) }()
	<-tried
	close(stop)
	<-tried
	gateway := newGateway(t, address, noBehaviour)
	if err := <-ended; err != nil {
		t.Errorf("got %v, log %q", err, sidecar.log)
	}
	if !slices.Equal(gateway.heard(), []string{"SB1 close first.token\n"}) {
		t.Errorf("the gateway heard %q", gateway.heard())
	}
}

func TestSignalEndsTheProgram(t *testing.T) {
	gateway := newGateway(t, "127.0.0.1:0", echo)
	address := fixtures.FreeAddress(t)
	sidecar := newPod(t, gateway.port())
	sidecar.sidecar.spec.Listen = map[string]int{specs.RouteProxy: portOf(t, address)}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, peakFile), []byte("4096\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := egressProgram(t, sidecar, folder)
	network.WaitOpen([]string{address}, nil)
	connection := dialled(t, address)
	send(t, connection, "x")
	receive(t, connection, "x")
	// What is no stop signal ends nothing.
	for _, number := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGPIPE, syscall.SIGTERM} {
		_ = command.Process.Signal(number)
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != outcome.CodeDone {
		t.Errorf("exit code %d", code)
	}
	if want := "egress-proxy: the gateway closed the launch\n"; !strings.HasSuffix(sidecar.log.String(), want) {
		t.Errorf("the log is %q", sidecar.log)
	}
	if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the agent saw %v", err)
	}
	message, err := os.ReadFile(filepath.Join(folder, messageFile))
	if err != nil || string(message) != `{"v":1,"memory_peak_bytes":4096}` {
		t.Errorf("the message is %s, %v", message, err)
	}
}

func TestBadSpecificationEndsTheSidecar(t *testing.T) {
	if code := Proxy("{}", os.DevNull); code != outcome.CodeOwnFault {
		t.Errorf("exit code %d", code)
	}
}
