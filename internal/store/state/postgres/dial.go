package postgres

import (
	"net"
	"time"
)

// A machine that loses its power, or a firewall that forgets, closes no
// connection: both ends have to find out for themselves, also while nothing is
// said. Ours takes some ten seconds.
var dialer = &net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	Control:         unheard,
}

// keepAlive are the server's settings for its end of an owner's connection. By
// default it would take an owner whose machine is gone for alive for hours.
var keepAlive = map[string]string{
	"tcp_keepalives_idle":     "10",
	"tcp_keepalives_interval": "5",
	"tcp_keepalives_count":    "3",
}
