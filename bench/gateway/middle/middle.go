// Package middle contains two programs of the gateway benchmark: an MCP server with one tool, and Go's reverse proxy.
package middle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MaxIdle is the number of idle connections kept for one server. There are fewer clients than idle connections, so no
// client has to wait for a new connection.
const MaxIdle = 64

type echoArgs struct {
	Text string `json:"text"`
}

type fillArgs struct {
	Bytes int `json:"bytes"`
}

// Echo returns a server with a tool that repeats its input, and a tool that returns a large text.
func Echo() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Repeats its input."}, func(_ context.Context, _ *mcp.CallToolRequest, in echoArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "fill", Description: "Returns a text of a size."}, func(_ context.Context, _ *mcp.CallToolRequest, in fillArgs) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("some text. ", in.Bytes/11)}}}, nil, nil
	})
	return s
}

// ServeEcho serves [Echo] over HTTP with JSON responses.
func ServeEcho() error {
	s := Echo()
	return listen(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true}))
}

// ServeProxy forwards every request to the server at target. If before is not nil, it is called before each answer.
func ServeProxy(target string, before func() error) error {
	to, err := url.Parse(target)
	if err != nil {
		return err
	}
	to.Path = ""
	p := &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: MaxIdle},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			// If the body is not read first, larger answers are sometimes truncated.
			if body, err := io.ReadAll(r.In.Body); err == nil {
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
			}
		},
	}
	if before != nil {
		p.ModifyResponse = func(*http.Response) error { return before() }
	}
	return listen(p)
}

// listen serves on a free loopback port and prints the address.
func listen(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", l.Addr())
	return http.Serve(l, h)
}
