//go:build !unix

package mcpwire

import "net"

// canPeek is false because this system cannot check a connection without reading from it. The package uses
// [http.Transport] instead, which detects closed connections in a different way.
const canPeek = false

func isQuiet(net.Conn) bool { return false }
