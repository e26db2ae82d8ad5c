package specs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	"securebench.dev/supervise/internal/outcome"
)

// States of a target, as the message has them.
const (
	StateOpen   = "open"
	StateClosed = "closed"
)

const (
	maxTargets = 32

	OverTCP = "tcp" // open when a connection is accepted
	OverUDP = "udp" // a name server; open when it answers a question
)

// Address is host and port as one word.
func (t Target) Address() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.Port)) }

func (s *Probe) validate() error {
	if min(s.TimeoutSeconds, s.QuietSeconds, s.LimitSeconds) <= 0 {
		return errors.New("a time is not above 0")
	}
	if s.QuietSeconds >= s.LimitSeconds {
		return errors.New("quiet_seconds do not fit into limit_seconds")
	}
	if len(s.MustOpen) > 0 && s.Want == StateOpen {
		return errors.New("must_open is for one that wants closed targets")
	}
	return s.validateTargets()
}

func (s *Probe) validateTargets() error {
	all := s.All()
	if len(s.Targets) == 0 || len(all) > maxTargets {
		return fmt.Errorf("%d targets, 1 to %d are possible", len(all), maxTargets)
	}
	states := make(map[string]string, len(all))
	for _, target := range all {
		if err := target.validate(); err != nil {
			return err
		}
		states[target.Name] = StateClosed
	}
	if len(states) != len(all) {
		return errors.New("two targets have the same name")
	}
	if text, err := json.Marshal(outcome.ProbeMessage{Targets: states}); err != nil || len(text) > outcome.MessageBytes-messageRoom {
		return errors.New("the names of the targets do not fit into a message")
	}
	return nil
}

// All are the targets, those that must be open last.
func (s *Probe) All() []Target {
	return append(append([]Target{}, s.Targets...), s.MustOpen...)
}

func (t Target) validate() error {
	if t.Name == "" {
		return errors.New("a target has no name")
	}
	if t.Host == "" || !isPort(t.Port) {
		return fmt.Errorf("target %q has no address with a port", t.Name)
	}
	return nil
}

// messageRoom is for what a message says besides its targets.
const messageRoom = 256
