package specs

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

const (
	maxPort = 1<<16 - 1
	// maxConnections is far above what one Pod is given.
	maxConnections = 1 << 16
)

// Routes: what a connection is for (operator/securebench/protocol/gateway.py).
const (
	RouteProxy    = "proxy"
	RouteProvider = "provider"
	RouteClose    = "close"
)

// Egress is the specification of the sidecar.
type Egress struct {
	Version int     `json:"version"`
	Gateway Gateway `json:"gateway"`
	// Token is the file with the launch's token; the kubelet replaces it from time to time.
	Token string `json:"token"`
	// Listen has the port on the loopback by route.
	Listen      map[string]int `json:"listen"`
	Connections int            `json:"connections"` // open at once
	// StartSeconds are for reaching the gateway at first, CloseSeconds for telling it that the harness
	// has ended.
	StartSeconds float64 `json:"start_seconds"`
	CloseSeconds float64 `json:"close_seconds"`
}

// Gateway is where a run's gateway listens.
type Gateway struct {
	Host string `json:"host"` // numeric: the Pod has no resolver
	Port int    `json:"port"`
}

// Address is host and port as one word.
func (g Gateway) Address() string { return net.JoinHostPort(g.Host, strconv.Itoa(g.Port)) }

// DecodeEgress returns the specification of a sidecar, valid or with an error.
func DecodeEgress(text string) (Egress, error) {
	var spec Egress
	if err := Decode(text, &spec); err != nil {
		return spec, err
	}
	return spec, spec.validate()
}

func (s *Egress) validate() error {
	if s.Version != 1 {
		return fmt.Errorf("specification: version %d is not known", s.Version)
	}
	if net.ParseIP(s.Gateway.Host) == nil || !isPort(s.Gateway.Port) {
		return errors.New("specification: the gateway has no numeric address with a port")
	}
	if s.Connections < 1 || s.Connections > maxConnections {
		return fmt.Errorf("specification: %d connections, 1 to %d are possible", s.Connections, maxConnections)
	}
	if s.StartSeconds <= 0 || s.CloseSeconds <= 0 {
		return errors.New("specification: a time limit is not above 0")
	}
	if len(s.Listen) == 0 {
		return errors.New("specification: there is no route")
	}
	for route, port := range s.Listen {
		if route != RouteProxy && route != RouteProvider {
			return fmt.Errorf("specification: route %q is not known", route)
		}
		if !isPort(port) {
			return fmt.Errorf("specification: route %s has no port", route)
		}
	}
	return Absolute([]string{s.Token})
}

func isPort(number int) bool { return number > 0 && number <= maxPort }
