// Package canary is the verb probe: it shows which addresses a Pod reaches.
package canary

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"securebench.dev/supervise/internal/network"
	"securebench.dev/supervise/internal/outcome"
	"securebench.dev/supervise/internal/specs"
)

const (
	// lookPause lies between two tries of a target. Tries overlap: one that is not answered is no reason to wait.
	lookPause = 200 * time.Millisecond

	// dnsName is answered by a cluster's resolver without asking another one; any answer counts.
	dnsName       = "kubernetes.default.svc.cluster.local"
	datagramBytes = 4096
)

// A tryFunc reports whether a target answers before ctx ends.
type tryFunc func(ctx context.Context, target specs.Target) bool

// Probe tries addresses from a canary or a control Pod and leaves which of them answer.
func Probe(text, log string) int {
	spec, err := specs.Read[specs.Probe](text)
	if err != nil {
		return probeFailed(err)
	}
	kernel, err := outcome.KernelRelease()
	if err != nil {
		return probeFailed(err)
	}
	found := newLookout(spec, answers).watch()
	found.Kernel = kernel
	message, err := json.Marshal(found)
	if err == nil {
		err = os.WriteFile(log, message, 0o644)
	}
	if err != nil {
		return probeFailed(err)
	}
	return outcome.CodeDone
}

func probeFailed(err error) int {
	fmt.Fprintln(os.Stderr, "supervise: probe:", err)
	return outcome.CodeFailed
}

// lookout tries all targets side by side, again and again, until it is sure.
//
// A canary is sure after a silence: for so many seconds, with a try of every target begun at every pause, no
// target answered that must not, and all the time those did that must. A policy that comes late only makes it
// wait. A control is sure when everything has answered, or one timeout after the first answer: its network is
// up by then, and what is closed stays so.
type lookout struct {
	spec   specs.Probe
	try    tryFunc
	points []*point
	begun  time.Time
	silent time.Time // since when there is silence
	looks  int       // begun since then
}

// point is one target.
type point struct {
	target   specs.Target
	mustOpen bool
	first    time.Time // when it answered first
	latest   time.Time // when it answered last
	openAt   time.Time // begin of the latest try that was answered
	isOpen   bool      // what the latest try found
	changed  time.Time // when it found that last of one that must be open
}

type finding struct {
	point *point
	begun time.Time
	open  bool
}

func newLookout(spec specs.Probe, try tryFunc) *lookout {
	found := &lookout{spec: spec, try: try}
	for index, target := range spec.All() {
		found.points = append(found.points, &point{target: target, mustOpen: index >= len(spec.Targets)})
	}
	return found
}

// watch returns when it is sure, or when the time is over.
func (l *lookout) watch() outcome.ProbeMessage {
	ctx, cancel := context.WithTimeout(context.Background(), specs.Duration(l.spec.LimitSeconds))
	defer cancel()
	findings := make(chan finding, len(l.points))
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	l.begun = time.Now()
	l.silent = l.begun
	for {
		l.look(ctx, findings)
		if !l.take(ctx, findings, ticker.C) || l.isSure() {
			return l.message()
		}
	}
}

// look begins a try of every target; a control leaves out those that have answered.
func (l *lookout) look(ctx context.Context, findings chan<- finding) {
	l.looks++
	for _, each := range l.points {
		if l.spec.Want == specs.StateOpen && !each.first.IsZero() {
			continue
		}
		go func() {
			begun := time.Now()
			limited, cancel := context.WithTimeout(ctx, specs.Duration(l.spec.TimeoutSeconds))
			defer cancel()
			found := finding{each, begun, l.try(limited, each.target)}
			select {
			case findings <- found:
			case <-ctx.Done():
			}
		}()
	}
}

// take takes findings in until the next look is due; it reports false when there will be none.
func (l *lookout) take(ctx context.Context, findings <-chan finding, next <-chan time.Time) bool {
	for {
		select {
		case found := <-findings:
			l.note(found)
			if l.spec.Want == specs.StateOpen && l.isSure() {
				return false
			}
		case <-ctx.Done():
			return false
		case <-next:
			for len(findings) > 0 {
				l.note(<-findings)
			}
			return true
		}
	}
}

func (l *lookout) note(found finding) {
	each, now := found.point, time.Now()
	if !found.open {
		// A try that waited in vain says nothing when a later one was answered.
		if each.isOpen && each.mustOpen && found.begun.After(each.openAt) {
			each.isOpen, each.changed = false, now
			l.disturbed(now)
		}
		return
	}
	if each.first.IsZero() {
		each.first = now
	}
	if !each.mustOpen {
		l.disturbed(now)
	} else if !each.isOpen {
		each.changed = now
		l.disturbed(now)
	}
	each.latest, each.isOpen = now, true
	if found.begun.After(each.openAt) {
		each.openAt = found.begun
	}
}

// disturbed lets the silence begin anew.
func (l *lookout) disturbed(now time.Time) { l.silent, l.looks = now, 0 }

func (l *lookout) isSure() bool {
	if l.spec.Want == specs.StateOpen {
		return l.isUp()
	}
	for _, each := range l.points {
		if each.mustOpen && !each.isOpen {
			return false
		}
	}
	quiet := specs.Duration(l.spec.QuietSeconds)
	// Looks count, too: a container that was given no time to run has heard nothing, and proves nothing.
	return time.Since(l.silent) >= quiet && l.looks >= int(quiet/lookPause)
}

// isUp reports whether a control has waited long enough for every target.
func (l *lookout) isUp() bool {
	var first time.Time
	missing := false
	for _, each := range l.points {
		switch {
		case each.first.IsZero():
			missing = true
		case first.IsZero() || each.first.Before(first):
			first = each.first
		}
	}
	return !missing || !first.IsZero() && time.Since(first) >= specs.Duration(l.spec.TimeoutSeconds)
}

func (l *lookout) message() outcome.ProbeMessage {
	found := outcome.ProbeMessage{V: 1, Targets: make(map[string]string, len(l.points))}
	last := l.begun
	for _, each := range l.points {
		found.Targets[each.target.Name] = specs.StateClosed
		moment := each.latest
		if l.isSeenOpen(each) {
			found.Targets[each.target.Name] = specs.StateOpen
			moment = each.first
		}
		if each.mustOpen {
			moment = each.changed
		}
		isCounted := each.mustOpen || found.Targets[each.target.Name] == l.spec.Want
		if isCounted && moment.After(last) {
			last = moment
		}
	}
	found.Seconds = outcome.Seconds(last.Sub(l.begun))
	if l.spec.Want == specs.StateClosed {
		found.Seconds = outcome.Seconds(time.Since(last))
	}
	return found
}

// isSeenOpen reports what is said of a target in the end. One that had answered a canary counts as closed
// only after a silence of full length.
func (l *lookout) isSeenOpen(each *point) bool {
	if each.first.IsZero() || each.mustOpen {
		return each.isOpen
	}
	return l.spec.Want == specs.StateOpen || time.Since(each.latest) < specs.Duration(l.spec.QuietSeconds)
}

// answers tries a target over the network.
func answers(ctx context.Context, target specs.Target) bool {
	if target.Protocol == specs.OverTCP {
		return network.Accepts(ctx, target.Address())
	}
	connection, err := new(net.Dialer).DialContext(ctx, specs.OverUDP, target.Address())
	if err != nil {
		return false
	}
	defer connection.Close()
	deadline, _ := ctx.Deadline()
	_ = connection.SetDeadline(deadline)
	query := dnsQuery()
	if _, err := connection.Write(query); err != nil {
		return false
	}
	reply := make([]byte, datagramBytes)
	size, err := connection.Read(reply)
	return err == nil && size >= 2 && reply[0] == query[0] && reply[1] == query[1]
}

// dnsQuery returns a recursive question for an address record, with an identity of its own.
func dnsQuery() []byte {
	query := make([]byte, 2, 64)
	_, _ = rand.Read(query)
	for _, word := range []uint16{0x0100, 1, 0, 0, 0} {
		query = binary.BigEndian.AppendUint16(query, word)
	}
	for label := range strings.SplitSeq(dnsName, ".") {
		query = append(append(query, byte(len(label))), label...)
	}
	return append(query, 0, 0, 1, 0, 1)
}
