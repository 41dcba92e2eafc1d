// Package mcpwire is a small MCP client for tool servers that loses nothing.
//
// Arguments, results, tool definitions and notifications are raw JSON, in and
// out: unknown content types, fields and _meta arrive byte for byte as the other
// side wrote them. The package reads only the envelope of a message, once,
// without building values. It checks that the rest is JSON and passes it on.
//
// # Life cycle
//
//	Stdio or HTTP → New → Negotiate → Call, CallTool, ListTools … → Close
//
// A [Transport] carries messages: [Stdio] over the two pipes of a process that
// the caller has started, [HTTP] over streamable HTTP. [New] makes a [Conn] from
// it and [Conn.Negotiate] greets the server, once. After that any number of calls
// may be under way together. A closed connection stays closed: [Conn.Done] and
// [Conn.Err] report it and the cause, every waiting call returns [ErrClosed] with
// the cause, and the caller starts the server again.
//
// # Two generations
//
// 2026-07-28 has no handshake: version and capabilities travel with every
// request. 2024-11-05 to 2025-11-25 begin with initialize. Negotiate asks
// server/discover first and falls back. A silent server costs
// [Options.ProbeTimeout], and its late answer is ignored; a server that exits
// causes [ErrRespawnLegacy]. A caller that remembers the result sets
// [Options.Legacy] or [Options.Modern] the next time. Negotiate sends initialize
// once. Only an HTTP session that the server has forgotten is made again; the
// call, which the server has refused unread, is then sent once more.
//
// # Limits on servers
//
// A server cannot exhaust the client's memory, time or goroutines.
//
//   - A message is at most [Options.MaxMessage] long and 1000 levels deep, in
//     UTF-8, without repeated envelope members. Over stdio a broken message ends
//     the connection, because a call may wait for it; over HTTP it ends the call.
//   - Lines on stdout that are not messages are skipped, up to a bound, and
//     reported. Answers to unknown calls are counted.
//   - A server that does not read its input blocks only itself: calls wait with
//     their own deadline, and the backlog is bounded.
//   - Notifications of a call wait in a bounded mailbox for the goroutine that
//     called; a slow caller loses the oldest and does not delay other calls.
//   - [Options.OnNotification], [Options.OnNoise] and [Options.OnGap] run in the
//     reading goroutine, so a flood of messages slows down only that server. They
//     must not block.
//   - Redirects are not followed, and an address of the old HTTP+SSE transport
//     is refused with [ErrSSEOnly].
//
// # HTTP
//
// Plain HTTP uses a small pool of HTTP/1.1 connections: the goroutine that calls
// writes the request and reads the response. TLS, proxies and systems that
// cannot peek at a connection (Windows) use [http.Transport]. No request is sent
// twice.
//
// # After an error
//
// An [*RPCError] is the server's answer. [ErrNotSent] is certain: the server
// never got the call. After any other error the server may have acted.
package mcpwire
