package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Verbs is the tree of all verbs, for the pages that are made of it.
func Verbs() *cobra.Command {
	return newRoot(newTerminal(strings.NewReader(""), io.Discard, io.Discard))
}
