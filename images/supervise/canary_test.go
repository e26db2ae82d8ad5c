package main

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
)

const canarySpec = `{"version":1,"want":"closed","timeout_seconds":2,"quiet_seconds":2,"limit_seconds":10,` +
	`"targets":[{"name":"api","host":"10.96.0.1","port":443,"protocol":"tcp"},` +
	`{"name":"dns","host":"10.96.0.10","port":53,"protocol":"udp"}]}`

const withGateway = `,"must_open":[{"name":"gateway","host":"10.96.7.7","port":8443,"protocol":"tcp"}]}`

// canaryAnd returns the specification of a canary that must reach a gateway.
func canaryAnd() string { return strings.TrimSuffix(canarySpec, "}") + withGateway }

func controlSpec() string { return strings.Replace(canarySpec, `"closed"`, `"open"`, 1) }

// span is a time, after the container's start, in which a target answers.
type span struct{ from, until time.Duration }

var (
	always = span{0, time.Hour}
	never  = span{}
)

func from(begin time.Duration) span { return span{begin, time.Hour} }

var counting sync.Mutex

// network answers by target. One that does not is silent, or refuses at once.
type network struct {
	answers map[string]span
	delay   time.Duration
	refuses bool

	begun time.Time
	tries map[string]int
}

func (n *network) try(ctx context.Context, target probeTarget) bool {
	counting.Lock()
	n.tries[target.Name]++
	counting.Unlock()
	now := time.Since(n.begun)
	when := n.answers[target.Name]
	if now >= when.from && now < when.until {
		return pause(ctx, n.delay)
	}
	if !n.refuses {
		<-ctx.Done()
	}
	return false
}

// watched lets a lookout work on a network and returns what it says, and after how long.
func watched(t *testing.T, text string, there *network) (probeMessage, time.Duration) {
	t.Helper()
	spec, err := decodeProbe(text)
	if err != nil {
		t.Fatal(err)
	}
	var found probeMessage
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
	shut := map[string]string{"api": stateClosed, "dns": stateClosed}
	reached := map[string]string{"api": stateClosed, "dns": stateClosed, "gateway": stateOpen}
	missed := map[string]string{"api": stateClosed, "dns": stateClosed, "gateway": stateClosed}
	leak := map[string]string{"api": stateOpen, "dns": stateClosed}
	leakBeside := map[string]string{"api": stateOpen, "dns": stateClosed, "gateway": stateOpen}
	open := map[string]string{"api": stateOpen, "dns": stateOpen}
	tests := map[string]struct {
		spec    string
		network network
		want    map[string]string
		took    time.Duration
		seconds float64
	}{
		"a canary is sure after a silence": {canarySpec, network{}, shut, 2 * second, 2},
		"refusals are no proof before":     {canarySpec, network{refuses: true}, shut, 2 * second, 2},
		"a policy that is never enforced":  {canarySpec, network{answers: map[string]span{"api": always}}, leak, 10 * second, 10},
		"a late policy is waited for": {
			canarySpec, network{answers: map[string]span{"api": {0, 3 * second}}}, shut, 4800 * time.Millisecond, 2,
		},
		"a policy that comes too late": {
			canarySpec, network{answers: map[string]span{"api": {0, 9 * second}}}, leak, 10 * second, 10,
		},
		"a network that comes up late": {
			canarySpec, network{answers: map[string]span{"api": from(1700 * time.Millisecond)}}, leak, 10 * second, 10,
		},
		"an answer that takes long": {
			canarySpec, network{answers: map[string]span{"api": always}, delay: 1900 * time.Millisecond}, leak, 10 * second, 10,
		},
		"one answer at the end of the silence": {
			canarySpec, network{answers: map[string]span{"dns": {1700 * time.Millisecond, 1900 * time.Millisecond}}}, shut, 3800 * time.Millisecond, 2,
		},
		"a gateway that answers all the time": {canaryAnd(), network{answers: map[string]span{"gateway": always}}, reached, 2 * second, 2},
		"the silence begins with the gateway": {
			canaryAnd(), network{answers: map[string]span{"gateway": from(3 * second)}}, reached, 5 * second, 2,
		},
		"a gateway that never answers": {canaryAnd(), network{}, missed, 10 * second, 10},
		"a gateway that goes": {
			canaryAnd(), network{answers: map[string]span{"gateway": {0, second}}, refuses: true}, missed, 10 * second, 9,
		},
		"a leak beside the gateway": {
			canaryAnd(), network{answers: map[string]span{"gateway": always, "api": always}}, leakBeside, 10 * second, 10,
		},
		"a control stops when all answer": {
			controlSpec(), network{answers: map[string]span{"api": always, "dns": from(second)}}, open, second, 1,
		},
		"a control gives up one timeout after the first answer": {
			controlSpec(), network{answers: map[string]span{"api": from(time.Second)}}, leak, 3 * second, 1,
		},
		"an open target of a control stays open": {
			controlSpec(), network{answers: map[string]span{"api": {0, second}}}, leak, 2 * second, 0,
		},
		"a control without a network": {controlSpec(), network{}, shut, 10 * second, 0},
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
	there := network{answers: map[string]span{"gateway": always}}
	watched(t, canaryAnd(), &there)
	for name, tries := range there.tries {
		if tries < 10 {
			t.Errorf("%s was tried %d times in two seconds", name, tries)
		}
	}
	control := network{answers: map[string]span{"api": always, "dns": from(time.Second)}}
	watched(t, controlSpec(), &control)
	if control.tries["api"] != 1 {
		t.Errorf("%d tries of a target that has answered", control.tries["api"])
	}
}

// A container that is kept from running hears nothing; time alone makes no silence.
func TestASilenceNeedsTries(t *testing.T) {
	spec, err := decodeProbe(canarySpec)
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

func TestDecodeProbe(t *testing.T) {
	second := `{"name":"dns","host":"10.96.0.10","port":53,"protocol":"udp"}`
	many := strings.Repeat(second+",", 32) + second
	for name, change := range map[string][2]string{
		"version":              {`"version":1`, `"version":2`},
		"want":                 {`"closed"`, `"maybe"`},
		"no targets":           {canarySpec[strings.Index(canarySpec, `"targets"`):], `"targets":[]}`},
		"too many":             {second, many},
		"the same name":        {`"dns"`, `"api"`},
		"no name":              {`"dns"`, `""`},
		"a long name":          {`"dns"`, `"` + strings.Repeat("n", messageBytes) + `"`},
		"no host":              {`"10.96.0.10"`, `""`},
		"no port":              {`"port":53`, `"port":0`},
		"another protocol":     {`"udp"`, `"icmp"`},
		"no time":              {`"timeout_seconds":2`, `"timeout_seconds":0`},
		"a silence too long":   {`"quiet_seconds":2`, `"quiet_seconds":10`},
		"an unknown field":     {`"version":1`, `"version":1,"rounds":4`},
		"the same field twice": {`"version":1`, `"version":1,"version":1`},
	} {
		text := strings.Replace(canarySpec, change[0], change[1], 1)
		if text == canarySpec {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := decodeProbe(text); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	both := strings.Replace(canaryAnd(), `"gateway"`, `"api"`, 1)
	control := strings.Replace(canaryAnd(), `"closed"`, `"open"`, 1)
	for _, text := range []string{both, control} {
		if _, err := decodeProbe(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if spec, err := decodeProbe(canaryAnd()); err != nil || len(spec.all()) != 3 {
		t.Errorf("%+v %v", spec, err)
	}
}

func FuzzDecodeProbe(f *testing.F) {
	for _, seed := range []string{canarySpec, canaryAnd(), controlSpec(), "{}", "null", `{"version":1,"targets":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := decodeProbe(text)
		if err != nil {
			return
		}
		states := map[string]string{}
		for _, target := range spec.all() {
			states[target.Name] = stateClosed
			if !isPort(target.Port) || target.Host == "" {
				t.Errorf("target %+v is accepted", target)
			}
		}
		if len(states) != len(spec.all()) || len(states) > maxTargets {
			t.Errorf("targets %+v are accepted", spec.all())
		}
		if duration(spec.QuietSeconds) < 0 || duration(spec.LimitSeconds) < duration(spec.QuietSeconds) {
			t.Errorf("%+v is accepted", spec)
		}
		largest := probeMessage{V: 1, Targets: states, Kernel: strings.Repeat("\x01", 32), Seconds: 1e9 + 0.001}
		if message, err := json.Marshal(largest); err != nil || len(message) > messageBytes {
			t.Errorf("%d bytes, %v", len(message), err)
		}
		written, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeProbe(withoutNulls(written))
		if err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if rewritten, _ := json.Marshal(again); string(rewritten) != string(written) {
			t.Errorf("%s became %s", written, rewritten)
		}
	})
}

// The network of this machine

func TestTheProgramLeavesItsFindings(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	there, gone := listener.Addr().(*net.TCPAddr).Port, newFixture(t)
	spec := map[string]any{
		"version": 1, "want": "open", "timeout_seconds": 0.3, "quiet_seconds": 0.3, "limit_seconds": 5,
		"targets": []any{
			map[string]any{"name": "there", "host": "127.0.0.1", "port": there, "protocol": "tcp"},
			map[string]any{"name": "gone", "host": "127.0.0.1", "port": 1, "protocol": "tcp"},
		},
	}
	text, _ := json.Marshal(spec)
	if err := gone.program("probe", string(text)).Run(); err != nil {
		t.Fatal(err)
	}
	var found probeMessage
	if err := json.Unmarshal([]byte(gone.read("log")), &found); err != nil {
		t.Fatal(err)
	}
	kernel, _ := kernelRelease()
	want := map[string]string{"there": stateOpen, "gone": stateClosed}
	if !maps.Equal(found.Targets, want) || found.Kernel != kernel || found.V != 1 {
		t.Errorf("%+v", found)
	}
}

func TestTheProgramRefusesABadSpecification(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if code := probe("{}", log); code != codeFailed {
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
		if got := answers(ctx, probeTarget{"dns", "127.0.0.1", port, overUDP}); got != (name == "answer") {
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
