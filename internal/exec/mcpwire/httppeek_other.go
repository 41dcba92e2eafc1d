//go:build !unix

package mcpwire

import "net"

// canPeek is false where [http.Transport] is used: its goroutines notice when a
// server closes a connection.
const canPeek = false

func isQuiet(*net.TCPConn) bool { return false }
