package untrusted

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"securebench.dev/supervise/internal/specs"
)

func TestTheSumOfSizesDoesNotOverflow(t *testing.T) {
	tree := &Walk{bounds: specs.CandidateBounds{WorkspaceBytes: 1000}, size: 1}
	if err := tree.measure(math.MaxInt64); !IsUnreadable(err) {
		t.Errorf("a file of the largest size is within the bound: %v", err)
	}
	if err := tree.measure(999); err != nil {
		t.Errorf("what was refused was counted: %v", err)
	}
}

// TestNamesTakeLessThanTheCouriersMemory: the bound on names holds for any number of files, so the most there
// can be of them are the shortest.
func TestNamesTakeLessThanTheCouriersMemory(t *testing.T) {
	const memory = 256 << 20
	held := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before, peak := held(), int64(0)
	names := &nameList{}
	for total := 0; total < maxNamesBytes; total += 4 {
		number := names.count()
		names.add(string([]byte{byte(number >> 21), byte(number >> 14 & 127), byte(number >> 7 & 127), byte(number & 127)}))
		if number%(1<<20) == 0 {
			peak = max(peak, held()-before)
		}
	}
	peak = max(peak, held()-before)
	t.Logf("%d names take %d MiB", names.count(), peak>>20)
	if peak > memory/2 {
		t.Errorf("%d MiB", peak>>20)
	}
	if string(names.at(5)) != "\x00\x00\x00\x05" {
		t.Errorf("%q", names.at(5))
	}
}

func TestNamesAreSorted(t *testing.T) {
	names := &nameList{}
	for number := range 5000 {
		names.add(strings.Repeat("n", (number*7919)%256) + fmt.Sprint(number))
	}
	names.sort()
	for index := 1; index < names.count(); index++ {
		if string(names.at(index-1)) >= string(names.at(index)) {
			t.Fatalf("%d: %q", index, names.at(index))
		}
	}
}
