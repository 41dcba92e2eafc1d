package cli

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"

	mango "github.com/muesli/mango-cobra"
	"github.com/muesli/roff"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ambit-run/ambit/internal/manifest/schema"
)

// version is the version of ambit. The Makefile sets it. In a build by "go install", it is the version of the module.
var version = unversioned

const unversioned = "devel"

func init() {
	if b, ok := debug.ReadBuildInfo(); ok && version == unversioned && strings.HasPrefix(b.Main.Version, "v") {
		version = b.Main.Version
	}
}

func newVersion(t *terminal) *cobra.Command {
	return verb("version", exactly(0, "no arguments"), func(context.Context, []string) error {
		system, arch := runtime.GOOS, runtime.GOARCH
		doc := map[string]string{"version": version, "go": runtime.Version(), "os": system, "arch": arch}
		return t.say(doc, "ambit %s (%s, %s/%s)\n", version, runtime.Version(), system, arch)
	})
}

func newMan(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:  "man",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plainUsage(cmd.Root())
			page, err := mango.NewManPage(1, cmd.Root())
			if err != nil {
				return no("", "cannot create the manual page: %w", err)
			}
			text := page.Build(roff.NewDocument())
			return t.say(map[string]string{"man": text}, "%s", text)
		},
	}
}

// plainUsage removes the back quotes around value names from the usage texts of flags.
func plainUsage(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		plainUsage(c)
	}
}

func newSchema(t *terminal) *cobra.Command {
	one := exactly(1, "one dialect ("+strings.Join(dialectNames(), ", ")+")")
	cmd := verb("schema DIALECT", one, func(_ context.Context, args []string) error {
		d, err := parseDialect(args[0])
		if err != nil {
			return err
		}
		t.printf("%s", schema.Of(d))
		return nil
	})
	cmd.ValidArgs = dialectNames()
	return cmd
}
