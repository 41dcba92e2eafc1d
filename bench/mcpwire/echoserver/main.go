// Command echoserver is a small MCP server. Its only tool, echo, returns the arguments. The server supports all
// protocol revisions of the benchmark. It can serve several clients at once, because the benchmark compares clients
// on the same server process:
//
//	echoserver            on stdin and stdout
//	echoserver -pipes 2   also on the file descriptors 3 and 4, 5 and 6
//	echoserver -http      on a loopback port instead of stdin and stdout: /json answers in JSON, /sse with an
//	                      event stream; stdout contains only the base URL
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	pipes := flag.Int("pipes", 0, "number of pairs of pipes to serve in addition to stdin and stdout")
	web := flag.Bool("http", false, "serve HTTP on a loopback port instead of stdin and stdout")
	flag.Parse()
	for i := range *pipes {
		go serve(os.NewFile(uintptr(3+2*i), "in"), os.NewFile(uintptr(4+2*i), "out"))
	}
	if !*web {
		serve(os.Stdin, os.Stdout)
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "echoserver:", err)
		os.Exit(1)
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the parent has exited
	}()
	fmt.Fprintln(os.Stderr, "echoserver:", http.Serve(l, http.HandlerFunc(post)))
	os.Exit(1)
}

// serve reads one message per line and answers it.
func serve(r io.Reader, w io.Writer) {
	in := bufio.NewReaderSize(r, 64<<10)
	var out []byte
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if out = answer(out[:0], line); len(out) > 0 {
			if _, err := w.Write(append(out, '\n')); err != nil {
				return
			}
		}
	}
}

func post(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch out := answer(nil, body); {
	case len(out) == 0:
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/sse":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", out)
		w.(http.Flusher).Flush()
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out)
	}
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments struct {
			Message json.RawMessage `json:"message"`
		} `json:"arguments"`
	} `json:"params"`
}

const (
	discovered  = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	initialized = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`
	tools       = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"message":{"type":"string"}}}}]}`
)

// answer appends the answer to a message to out. Notifications have no answer.
func answer(out, msg []byte) []byte {
	var m message
	if err := json.Unmarshal(msg, &m); err != nil || len(m.ID) == 0 {
		return out
	}
	out = append(append(out, `{"jsonrpc":"2.0","id":`...), m.ID...)
	switch m.Method {
	case "server/discover":
		out = append(append(out, `,"result":`...), discovered...)
	case "initialize":
		out = append(append(out, `,"result":`...), initialized...)
	case "tools/list":
		out = append(append(out, `,"result":`...), tools...)
	case "tools/call":
		out = append(out, `,"result":{"resultType":"complete","content":[{"type":"text","text":`...)
		out = append(append(out, m.Params.Arguments.Message...), `}]}`...)
	case "ping":
		out = append(out, `,"result":{}`...)
	default:
		out = append(out, `,"error":{"code":-32601,"message":"method not found"}`...)
	}
	return append(out, '}')
}
