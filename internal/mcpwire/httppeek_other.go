//go:build !unix

package mcpwire

import "net"

// canPeek is false where [http.Transport] is used instead of the pool: its
// goroutines notice when a server closes a connection.
const canPeek = false

func untouched(net.Conn) bool { return false }
