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

// Address is host and port as one word.
func (g GatewayAddress) Address() string { return net.JoinHostPort(g.Host, strconv.Itoa(g.Port)) }

func (s *Egress) validate() error {
	if net.ParseIP(s.Gateway.Host) == nil || !isPort(s.Gateway.Port) {
		return errors.New("the gateway has no numeric address with a port")
	}
	if s.Connections < 1 || s.Connections > maxConnections {
		return fmt.Errorf("%d connections, 1 to %d are possible", s.Connections, maxConnections)
	}
	if s.StartSeconds <= 0 || s.CloseSeconds <= 0 {
		return errors.New("a time limit is not above 0")
	}
	if len(s.Listen) == 0 {
		return errors.New("there is no route")
	}
	for route, port := range s.Listen {
		if route != RouteProxy && route != RouteProvider {
			return fmt.Errorf("route %q is not known", route)
		}
		if !isPort(port) {
			return fmt.Errorf("route %s has no port", route)
		}
	}
	return nil
}

func isPort(number int) bool { return number > 0 && number <= maxPort }
