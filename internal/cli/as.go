package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// actAs is the flag with which an owner acts as another principal.
type actAs struct{ as string }

func (f *actAs) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.as, "as", "", "act as this `principal`; for owners only")
}

// who returns the principal of a call, and the owner who makes it if that is another one.
func (f *actAs) who(t *terminal) (principal, by string, err error) {
	me := identity.LocalName()
	if f.as == "" || f.as == me {
		return me, "", nil
	}
	if !identity.ValidName(f.as) {
		return "", "", usage("a principal is a name such as "+me, "--as %s cannot be the name of a principal", diag.Quote(f.as))
	}
	return f.as, me, t.checkOwner("only the owner may act as others")
}

// checkOwner refuses users who do not own this home.
func (t *terminal) checkOwner(rule string) error {
	err := identity.CheckOwner(t.home.Root())
	if errors.Is(err, identity.ErrNotOwner) {
		return no("run it as the user who owns "+t.home.Dir(), "%s: %w", rule, err)
	}
	return err
}
