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
	var peer *unix.Xucred
	asked := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	return asked == nil && err == nil && int(peer.Uid) == ownUser()
}
