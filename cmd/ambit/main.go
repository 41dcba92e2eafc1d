// Command ambit is a gateway between AI agents and their MCP tool servers. Agents can do only what their manifests
// declare.
package main

import (
	"os"

	"github.com/ambit-run/ambit/internal/cli"
)

func main() { os.Exit(cli.Main()) }
