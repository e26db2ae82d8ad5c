package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	codeOf64Bits = 0x33 // segment of 64-bit code
	noSyscall    = ^uint64(0)
	vdsoName     = "[vdso]"
	vdsoBytes    = 64 << 10
)

var syscallInstruction = []byte{0x0f, 0x05}

// hide has the stopped process call prctl(PR_SET_DUMPABLE, 0). Its text cannot be written back once
// it is undumpable, so an instruction is used that the kernel has put into it.
func (g *guard) hide() error {
	var saved unix.PtraceRegs
	if err := unix.PtraceGetRegs(g.pid, &saved); err != nil {
		return err
	}
	if saved.Cs != codeOf64Bits {
		return errors.New("it is no 64-bit program")
	}
	place, err := g.findInstruction()
	if err != nil {
		return err
	}
	call := saved
	call.Rip, call.Rax, call.Orig_rax = place, unix.SYS_PRCTL, noSyscall
	call.Rdi, call.Rsi, call.Rdx, call.R10, call.R8 = unix.PR_SET_DUMPABLE, 0, 0, 0, 0
	if err := unix.PtraceSetRegs(g.pid, &call); err != nil {
		return err
	}
	if err := unix.PtraceSingleStep(g.pid); err != nil {
		return err
	}
	if err := g.next(); err != nil {
		return err
	}
	var after unix.PtraceRegs
	if err := unix.PtraceGetRegs(g.pid, &after); err != nil {
		return err
	}
	if after.Rax != 0 {
		return fmt.Errorf("prctl: %w", unix.Errno(-int64(after.Rax)))
	}
	return unix.PtraceSetRegs(g.pid, &saved)
}

func (g *guard) findInstruction() (uint64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", g.pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(maps), "\n") {
		var begin, end uint64
		if !strings.HasSuffix(line, vdsoName) {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &begin, &end); err != nil {
			return 0, err
		}
		text := make([]byte, min(end-begin, vdsoBytes))
		if _, err := unix.PtracePeekText(g.pid, uintptr(begin), text); err != nil {
			return 0, err
		}
		if at := bytes.Index(text, syscallInstruction); at >= 0 {
			return begin + uint64(at), nil
		}
	}
	return 0, errors.New("no place for a system call was found")
}
