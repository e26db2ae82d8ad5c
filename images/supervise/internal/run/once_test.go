package run

import (
	"testing"
	"time"
)

func TestFoldersThatNobodyMakesAreNoLongWait(t *testing.T) {
	stop := make(chan struct{})
	if waitMade([]string{"", t.TempDir(), "/no/such"}, 5*madePause, stop) {
		t.Error("a missing folder counts as made")
	}
	close(stop)
	if waitMade([]string{"/no/such"}, time.Hour, stop) {
		t.Error("stop did not end the wait")
	}
}
