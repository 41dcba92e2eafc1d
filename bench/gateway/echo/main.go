// Command echo is the MCP server of the gateway benchmark. It listens on a loopback port and prints its address. With
// -stdio, it uses stdin and stdout instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ambit-run/ambit/bench/gateway/middle"
)

func main() {
	stdio := flag.Bool("stdio", false, "serve on stdin and stdout")
	flag.Parse()
	serve := middle.ServeEcho
	if *stdio {
		serve = func() error { return middle.Echo().Run(context.Background(), &mcp.StdioTransport{}) }
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}
