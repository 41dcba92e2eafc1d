package cli

import (
	"runtime"
	"strings"

	mango "github.com/muesli/mango-cobra"
	"github.com/muesli/roff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/internal/manifest/schema"
)

// version is set by the build.
var version = "devel"

func newVersion(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: groupHelp,
		Short:   "Print the version of ambit",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			if t.json {
				return t.document(map[string]string{
					"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			t.printf("ambit %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

func newMan(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		GroupID: groupHelp,
		Short:   "Print the manual page",
		Example: "  ambit man > ambit.1 && man ./ambit.1",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plainUsage(cmd.Root())
			page, err := mango.NewManPage(1, cmd.Root())
			if err != nil {
				return no("", "cannot make the manual page: %w", err)
			}
			text := page.Build(roff.NewDocument())
			return t.say(map[string]string{"man": text}, "%s", text)
		},
	}
}

// plainUsage takes out the marks that tell help the names of flags' values.
func plainUsage(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		plainUsage(c)
	}
}

func newSchema(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:       "schema DIALECT",
		GroupID:   groupWrite,
		Short:     "Print the JSON Schema of a dialect, for your editor",
		Long:      "Print the JSON Schema (2020-12) of a dialect: " + strings.Join(dialectNames(), ", ") + ". Editors use it to check and\ncomplete a manifest while it is written; ambit validate knows more rules than a schema can hold.",
		Example:   "  ambit schema matrix > matrix.schema.json",
		ValidArgs: dialectNames(),
		Args:      exactly(1, "one dialect ("+strings.Join(dialectNames(), ", ")+")"),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := parseDialect(args[0])
			if err != nil {
				return err
			}
			t.printf("%s", schema.Of(d))
			return nil
		},
	}
}
