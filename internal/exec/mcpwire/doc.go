// Package mcpwire is a small MCP client for tool servers. It passes all content on unchanged.
//
// Arguments, results, tool definitions and notifications are raw JSON. Unknown content types, unknown fields and
// _meta arrive exactly as the other side sent them. The package parses only the envelope of a message, which consists
// of the members that JSON-RPC defines. All other content is only checked for valid JSON.
//
// # Life cycle
//
//	Stdio or HTTP → New → Negotiate → Call, CallTool, ListTools … → Close
//
// A [Transport] carries the messages. [Stdio] uses the two pipes of a process that the caller has started. [HTTP]
// uses streamable HTTP. [New] creates a [Conn] from a transport, and [Conn.Negotiate] opens the connection to the
// server. After that, any number of calls can run concurrently.
//
// A closed connection stays closed. The caller has to start the server again. [Conn.Done] signals the end of the
// connection, and [Conn.Err] returns the cause. Every waiting call returns [ErrClosed] with the cause.
//
// # Modern and legacy servers
//
// This package calls a server modern if the server supports revision 2026-07-28. A modern server needs no handshake:
// every request contains the version and the client's capabilities. Servers that support only the revisions
// 2024-11-05 to 2025-11-25 are called legacy. A connection to a legacy server begins with the request initialize.
//
// Negotiate sends server/discover first and falls back to initialize. If the server does not answer server/discover
// within [Options.ProbeTimeout], a later answer is ignored. If the server exits instead, Negotiate returns
// [ErrRespawnLegacy]. A caller that knows the server's generation can avoid the probe with [Options.Legacy] or
// [Options.Modern].
//
// Initialize is sent only once, with one exception. If an HTTP server no longer knows the session, the connection
// creates a new session and sends the failed call again.
//
// # Limits on servers
//
// A server cannot exhaust the client's memory, time or goroutines.
//
//   - A message must be valid UTF-8, at most [Options.MaxMessage] bytes long and at most 1000 levels deep. Members of
//     the envelope must not be repeated. Over stdio, an invalid message ends the connection, because a call may be
//     waiting for that message. Over HTTP, an invalid message ends only the call.
//   - Lines on stdout that are not messages are reported and skipped. At most [Options.MaxNoise] lines in a row are
//     allowed. Answers to unknown calls are counted and dropped.
//   - If a server does not read its input, only calls to this server wait. These calls wait until their own
//     deadlines. The queue of messages to the server is bounded.
//   - A notification larger than [MaxNotification] is dropped.
//   - Notifications about a call wait in a bounded mailbox until the calling goroutine reads them. A slow caller
//     loses the oldest notifications, but other calls are not delayed.
//   - [Options.OnNotification], [Options.OnNoise] and [Options.OnGap] run in the goroutine that reads from the
//     server. A flood of messages slows down only that server. These callbacks must not block.
//   - A panic while a message is handled closes only the connection. It is reported to [Options.OnPanic].
//   - Redirects are not followed. A URL of the old HTTP+SSE transport is refused with [ErrSSEOnly].
//
// # HTTP
//
// For http URLs, the package uses a small pool of HTTP/1.1 connections. The calling goroutine writes the request and
// reads the response. For https URLs and for proxies, the package uses [http.Transport]. The package also uses
// [http.Transport] on systems such as Windows, which cannot check a connection without reading from it. A request
// that may have reached the server is not sent a second time.
//
// # After an error
//
// An [*RPCError] is an error that the server sent as its answer. [ErrNotSent] means that the server certainly did not
// receive the call. After any other error, the server may have executed the call.
package mcpwire
