// Command ambit runs agents that do what their manifest says, and nothing else.
package main

import (
	"os"

	"github.com/ambit-run/ambit/internal/cli"
)

func main() { os.Exit(cli.Main()) }
