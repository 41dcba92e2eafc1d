package postgres

import (
	"net"
	"time"
)

// A machine that loses power, or a firewall that drops its state, closes no connection.
// Both ends must detect this themselves, also while the connection is idle. The client
// takes about ten seconds.
var dialer = &net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	Control:         unheard,
}

// keepAlive contains the server's settings for its end of an owner's connection. With the
// defaults, the server would keep the lock of a vanished machine for hours.
var keepAlive = map[string]string{
	"tcp_keepalives_idle":     "10",
	"tcp_keepalives_interval": "5",
	"tcp_keepalives_count":    "3",
}
