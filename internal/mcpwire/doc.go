// Package mcpwire is a small MCP client for tool servers that loses nothing.
//
// Arguments, results, tool definitions and notifications are raw JSON, in and
// out: content types, fields and _meta that this package has never heard of
// arrive byte for byte as the other side wrote them. Of a message it reads the
// envelope only, once, without building anything; what is inside is checked to
// be JSON and handed on.
//
// # Life cycle
//
//	Stdio or HTTP → New → Negotiate → Call, CallTool, ListTools … → Close
//
// A [Transport] carries messages: [Stdio] over the two pipes of a process that
// the caller has started, [HTTP] over streamable HTTP. [New] makes a [Conn] of
// it, [Conn.Negotiate] greets the server, once. Then any number of calls may be
// under way together. A connection that has ended stays ended: [Conn.Done] and
// [Conn.Err] tell that and why, every call that waited gets an [ErrClosed] with
// the cause, and starting the server again is the caller's part.
//
// # Two generations
//
// 2026-07-28 has no handshake: version and capabilities travel with every
// request. 2024-11-05 to 2025-11-25 begin with initialize. Negotiate asks
// server/discover first and falls back. A server that stays silent costs
// [Options.ProbeTimeout], and its late answer is ignored; one that exits gives
// [ErrRespawnLegacy]. Whoever remembers the answer sets [Options.Legacy] or
// [Options.Modern] the next time. There is never a second initialize, except
// for an HTTP session that the server has forgotten: it is made again and the
// call, which the server has refused unread, is sent once more.
//
// # What a server may do to us
//
// Servers are not trusted with our memory, our time or our goroutines.
//
//   - A message is at most [Options.MaxMessage] long and 1000 levels deep,
//     in UTF-8, with no member of the envelope twice. Over stdio a broken message
//     ends the connection, since somebody waits for what it was to be; over
//     HTTP it ends the call.
//   - Lines on stdout that are no messages are skipped, up to a bound, and
//     reported. Answers nobody waits for are counted.
//   - A server that does not read its input blocks nobody: calls wait with
//     their own deadline, and the backlog is bounded.
//   - Notifications of a call wait in a bounded mailbox for the goroutine that
//     called; a slow caller loses the oldest, and slows down nobody else.
//   - [Options.OnNotification], [Options.OnNoise] and [Options.OnGap] run where
//     messages are read, so that a flood of them slows down only that server.
//     They must not block.
//   - Redirects are not followed, and an address of the old HTTP+SSE transport
//     is refused with [ErrSSEOnly].
//
// # HTTP
//
// Requests go by a small pool of HTTP/1.1 connections of our own: the goroutine
// that calls writes the request, with one write, and reads the answer, where
// [http.Transport] hands both between goroutines. A request is never sent twice.
// Through a proxy, to a server that wants HTTP/2, and where a connection cannot
// be looked at without reading from it (Windows), [http.Transport] is used.
//
// # What became of a call
//
// An [*RPCError] is the server's answer. [ErrNotSent] is certain: the server
// never got the call. After any other error the server may have acted.
package mcpwire
