package daemon

import (
	"net"

	"golang.org/x/sys/unix"
)

// knowsPeers reports whether sameUser works on this system.
const knowsPeers = true

// sameUser reports whether the process at the other end of a connection has the same user as this process.
func sameUser(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	asked := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return asked == nil && err == nil && int(peer.Uid) == ownUser()
}
