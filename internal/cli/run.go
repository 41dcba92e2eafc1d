package cli

import (
	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/front"
	"github.com/ambit-run/ambit/internal/skill"
)

func newRun(t *terminal) *cobra.Command {
	var skillFile string
	cmd := &cobra.Command{
		Use:     "run PATH",
		GroupID: groupRun,
		Short:   "Serve an agent over MCP on standard input and output",
		Long: "Serve an agent to an MCP client on standard input and output. Its tool servers are started and proven\n" +
			"first; if any is not what the manifest says, nothing is served. What servers write goes to stderr.",
		Example: "  ambit run agents/default.json\n  claude mcp add files -- ambit run /path/to/default.json",
		Args:    exactly(1, "one manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := t.load(args[0], "")
			if err != nil {
				return err
			}
			a := &front.Agent{Version: version}
			if skillFile != "" {
				tools, err := skill.Load(skillFile)
				if err != nil {
					return usage("a §TOOLS section lists pinned tool URIs, one to a line, or none", "the skill cannot be used: %w", err)
				}
				a.Skill = tools
			}
			g, servers, err := t.open(cmd.Context(), m)
			if err != nil {
				return err
			}
			defer servers.Close()
			a.Gateway, a.Definition = g, servers.Definition
			if err := front.ServeStdio(cmd.Context(), a, t.in, t.raw); err != nil && cmd.Context().Err() == nil {
				return no("", "the client's input cannot be read: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&skillFile, "skill", "", "a skill `file` whose §TOOLS section narrows what may be called")
	return cmd
}
