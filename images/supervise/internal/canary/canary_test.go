package canary

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"securebench.dev/supervise/internal/fixtures"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
)

// span is a time, after the container's start, in which a target answers.
type span struct{ from, until time.Duration }

var (
	always = span{0, time.Hour}
	never  = span{}
)

func from(begin time.Duration) span { return span{begin, time.Hour} }

var counting sync.Mutex

// fakeNetwork answers by target. One that does not is silent, or refuses at once.
type fakeNetwork struct {
	answers map[string]span
	delay   time.Duration
	refuses bool

	begun time.Time
	tries map[string]int
}

func (n *fakeNetwork) try(ctx context.Context, target specs.Target) bool {
	counting.Lock()
	n.tries[target.Name]++
	counting.Unlock()
	now := time.Since(n.begun)
	when := n.answers[target.Name]
	if now >= when.from && now < when.until {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(n.delay):
			return true
		}
	}
	if !n.refuses {
		<-ctx.Done()
	}
	return false
}

// watched lets a lookout work on a network and returns what it says, and after how long.
func watched(t *testing.T, text string, there *fakeNetwork) (outcome.ProbeMessage, time.Duration) {
	t.Helper()
	spec, err := specs.Read[specs.Probe](text)
	if err != nil {
		t.Fatal(err)
	}
	var found outcome.ProbeMessage
	var took time.Duration
	synctest.Test(t, func(*testing.T) {
		there.begun, there.tries = time.Now(), map[string]int{}
		found = newLookout(spec, there.try).watch()
		took = time.Since(there.begun)
	})
	return found, took
}

func TestLookouts(t *testing.T) {
	const second = time.Second
	shut := map[string]string{"api": specs.StateClosed, "dns": specs.StateClosed}
	reached := map[string]string{"api": specs.StateClosed, "dns": specs.StateClosed, "gateway": specs.StateOpen}
	missed := map[string]string{"api": specs.StateClosed, "dns": specs.StateClosed, "gateway": specs.StateClosed}
	leak := map[string]string{"api": specs.StateOpen, "dns": specs.StateClosed}
	leakBeside := map[string]string{"api": specs.StateOpen, "dns": specs.StateClosed, "gateway": specs.StateOpen}
	open := map[string]string{"api": specs.StateOpen, "dns": specs.StateOpen}
	tests := map[string]struct {
		spec    string
		network fakeNetwork
		want    map[string]string
		took    time.Duration
		seconds float64
	}{
		"a canary is sure after a silence": {fixtures.CanarySpec, fakeNetwork{}, shut, 2 * second, 2},
		"refusals are no proof before":     {fixtures.CanarySpec, fakeNetwork{refuses: true}, shut, 2 * second, 2},
		"a policy that is never enforced":  {fixtures.CanarySpec, fakeNetwork{answers: map[string]span{"api": always}}, leak, 10 * second, 10},
		"a late policy is waited for": {
			fixtures.CanarySpec, fakeNetwork{answers: map[string]span{"api": {0, 3 * second}}}, shut, 4800 * time.Millisecond, 2,
		},
		"a policy that comes too late": {
			fixtures.CanarySpec, fakeNetwork{answers: map[string]span{"api": {0, 9 * second}}}, leak, 10 * second, 10,
		},
		"a network that comes up late": {
			fixtures.CanarySpec, fakeNetwork{answers: map[string]span{"api": from(1700 * time.Millisecond)}}, leak, 10 * second, 10,
		},
		"an answer that takes long": {
			fixtures.CanarySpec, fakeNetwork{answers: map[string]span{"api": always}, delay: 1900 * time.Millisecond}, leak, 10 * second, 10,
		},
		"one answer at the end of the silence": {
			fixtures.CanarySpec, fakeNetwork{answers: map[string]span{"dns": {1700 * time.Millisecond, 1900 * time.Millisecond}}}, shut, 3800 * time.Millisecond, 2,
		},
		"a gateway that answers all the time": {fixtures.CanaryWithGateway(), fakeNetwork{answers: map[string]span{"gateway": always}}, reached, 2 * second, 2},
		"the silence begins with the gateway": {
			fixtures.CanaryWithGateway(), fakeNetwork{answers: map[string]span{"gateway": from(3 * second)}}, reached, 5 * second, 2,
		},
		"a gateway that never answers": {fixtures.CanaryWithGateway(), fakeNetwork{}, missed, 10 * second, 10},
		"a gateway that goes": {
			fixtures.CanaryWithGateway(), fakeNetwork{answers: map[string]span{"gateway": {0, second}}, refuses: true}, missed, 10 * second, 9,
		},
		"a leak beside the gateway": {
			fixtures.CanaryWithGateway(), fakeNetwork{answers: map[string]span{"gateway": always, "api": always}}, leakBeside, 10 * second, 10,
		},
		"a control stops when all answer": {
			fixtures.ControlSpec(), fakeNetwork{answers: map[string]span{"api": always, "dns": from(second)}}, open, second, 1,
		},
		"a control gives up one timeout after the first answer": {
			fixtures.ControlSpec(), fakeNetwork{answers: map[string]span{"api": from(time.Second)}}, leak, 3 * second, 1,
		},
		"an open target of a control stays open": {
			fixtures.ControlSpec(), fakeNetwork{answers: map[string]span{"api": {0, second}}}, leak, 2 * second, 0,
		},
		"a control without a network": {fixtures.ControlSpec(), fakeNetwork{}, shut, 10 * second, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, took := watched(t, test.spec, &test.network)
			if !maps.Equal(found.Targets, test.want) || found.V != 1 {
				t.Errorf("%+v", found)
			}
			if late := took - test.took; late < 0 || late > lookPause {
				t.Errorf("it took %v, want %v", took, test.took)
			}
			if late := found.Seconds - test.seconds; late < -0.2 || late > 0.3 {
				t.Errorf("%v seconds, want %v", found.Seconds, test.seconds)
			}
		})
	}
}

func TestEveryTargetIsTriedAllTheTime(t *testing.T) {
	there := fakeNetwork{answers: map[string]span{"gateway": always}}
	watched(t, fixtures.CanaryWithGateway(), &there)
	for name, tries := range there.tries {
		if tries < 10 {
			t.Errorf("%s was tried %d times in two seconds", name, tries)
		}
	}
	control := fakeNetwork{answers: map[string]span{"api": always, "dns": from(time.Second)}}
	watched(t, fixtures.ControlSpec(), &control)
	if control.tries["api"] != 1 {
		t.Errorf("%d tries of a target that has answered", control.tries["api"])
	}
}

// A container that is kept from running hears nothing; time alone makes no silence.
func TestASilenceNeedsTries(t *testing.T) {
	spec, err := specs.Read[specs.Probe](fixtures.CanarySpec)
	if err != nil {
		t.Fatal(err)
	}
	starved := newLookout(spec, nil)
	starved.silent, starved.looks = time.Now().Add(-time.Minute), 9
	if starved.isSure() {
		t.Error("it is sure after nine looks")
	}
	starved.looks++
	if !starved.isSure() {
		t.Error("it is not sure after ten")
	}
	starved.silent, starved.looks = time.Now().Add(-time.Second), 100
	if starved.isSure() {
		t.Error("it is sure after a second")
	}
}

// The network of this machine

func TestTheProgramLeavesItsFindings(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	there, log := listener.Addr().(*net.TCPAddr).Port, filepath.Join(t.TempDir(), "log")
	spec := map[string]any{
		"version": 1, "want": "open", "timeout_seconds": 0.3, "quiet_seconds": 0.3, "limit_seconds": 5,
		"targets": []any{
			map[string]any{"name": "there", "host": "127.0.0.1", "port": there, "protocol": "tcp"},
			map[string]any{"name": "gone", "host": "127.0.0.1", "port": 1, "protocol": "tcp"},
		},
	}
	text, _ := json.Marshal(spec)
	if code := Probe(string(text), log); code != outcome.CodeDone {
		t.Fatal(code)
	}
	message, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var found outcome.ProbeMessage
	if err := json.Unmarshal(message, &found); err != nil {
		t.Fatal(err)
	}
	kernel, _ := outcome.KernelRelease()
	want := map[string]string{"there": specs.StateOpen, "gone": specs.StateClosed}
	if !maps.Equal(found.Targets, want) || found.Kernel != kernel || found.V != 1 {
		t.Errorf("%+v", found)
	}
}

func TestTheProgramRefusesABadSpecification(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if code := Probe("{}", log); code != outcome.CodeFailed {
		t.Error(code)
	}
	if _, err := os.Stat(log); err == nil {
		t.Error("there is a message")
	}
}

func TestANameServerIsOpenWhenItAnswers(t *testing.T) {
	for name, reply := range map[string]func([]byte) []byte{
		"answer":  func(query []byte) []byte { return query[:12] },
		"foreign": func(query []byte) []byte { return append([]byte{query[0] ^ 1}, query[1:]...) },
		"short":   func(query []byte) []byte { return query[:1] },
		"silence": func([]byte) []byte { return nil },
	} {
		server, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		go func() {
			query := make([]byte, datagramBytes)
			size, from, err := server.ReadFrom(query)
			if answer := reply(query[:size]); err == nil && answer != nil {
				_, _ = server.WriteTo(answer, from)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		port := server.LocalAddr().(*net.UDPAddr).Port
		if got := answers(ctx, specs.Target{Name: "dns", Host: "127.0.0.1", Port: port, Protocol: specs.OverUDP}); got != (name == "answer") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestQueryIsADNSQuestion(t *testing.T) {
	query := dnsQuery()
	if string(query[2:12]) != "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" {
		t.Errorf("%q", query)
	}
	if !strings.HasSuffix(string(query), "\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01") {
		t.Errorf("%q", query)
	}
}
