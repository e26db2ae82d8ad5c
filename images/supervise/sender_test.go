package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"securebench.dev/supervise/internal/outcome"
)

// helperForger makes the test binary send PID 1 a signal that claims to come from outside, with the number and
// the si_code that the variable has.
const helperForger = "SUPERVISE_TEST_FORGE"

const (
	infoBytes = 128
	codeAt    = 8 // offset of si_code in a siginfo
)

// forge sends a siginfo of its own making, in which the sender is 0, and prints what the kernel said.
func forge(words string) int {
	var number, code int
	if _, err := fmt.Sscan(words, &number, &code); err != nil {
		fmt.Println(err)
		return outcome.CodeFailed
	}
	var info [infoBytes]byte
	binary.NativeEndian.PutUint32(info[:], uint32(number))
	binary.NativeEndian.PutUint32(info[codeAt:], uint32(int32(code)))
	_, _, fault := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(number), uintptr(unsafe.Pointer(&info)))
	fmt.Println("forged:", int(fault))
	return outcome.CodeDone
}

func TestCommandCannotPretendToStopFromOutside(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const userCode, queueCode, kernelCode = 0, -1, 0x80
	cases := map[string]struct {
		script string
		said   string
	}{
		"kill":               {"kill -TERM 1", ""},
		"another signal":     {"kill -WINCH 1", ""},
		"a child of init":    {"(sleep 0.1; kill -TERM 1) & exec sleep 60", ""},
		"a new namespace":    {"unshare --user --pid --fork true; kill -TERM 1", ""},
		"code of kill":       {forgery(program, unix.SIGTERM, userCode) + "; kill -TERM 1", fmt.Sprintf("forged: %d", unix.EPERM)},
		"code of the kernel": {forgery(program, unix.SIGTERM, kernelCode) + "; kill -TERM 1", fmt.Sprintf("forged: %d", unix.EPERM)},
		"code of sigqueue":   {forgery(program, unix.SIGTERM, queueCode), ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.init = true
			got := f.phases(shell(test.script + "; sleep 60")).run()
			if got.code != outcome.CodeStopped || !strings.HasPrefix(f.read("output/stdout"), test.said) {
				t.Errorf("code %d, printed %q", got.code, f.read("output/stdout"))
			}
		})
	}
}

func forgery(program string, number unix.Signal, code int) string {
	return fmt.Sprintf("%s='%d %d' %s", helperForger, int(number), code, program)
}
