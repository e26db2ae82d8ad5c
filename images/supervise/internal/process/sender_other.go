//go:build !amd64 && !arm64

package process

import "os"

func noteSenders([]os.Signal) {}

// wasStoppedFromOutside is not known on this processor.
func wasStoppedFromOutside() bool { return false }
