//go:build !linux

package egress

import "net"

// newSpliced returns nil, because only Linux can splice connections.
func newSpliced(net.Conn, net.Conn) stream { return nil }
