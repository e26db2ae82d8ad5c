//go:build amd64 || arm64

package process

import (
	"os"
	"os/signal"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFirstSenderCounts(t *testing.T) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGUSR2)
	defer signal.Stop(told)
	noteSenders([]os.Signal{unix.SIGUSR2})
	for name, test := range map[string]struct{ before, want uint32 }{
		"this process":                  {0, senderInside},
		"this process, after a kubelet": {senderOutside, senderOutside},
	} {
		t.Run(name, func(t *testing.T) {
			atomic.StoreUint32(&firstSender, test.before)
			if err := unix.Kill(os.Getpid(), unix.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			<-told
			if got := atomic.LoadUint32(&firstSender); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}
