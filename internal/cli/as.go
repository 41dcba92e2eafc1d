package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

// asOther is the flag by which an owner calls in the name of somebody else.
type asOther struct{ as string }

func (f *asOther) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.as, "as", "", "in whose name, for owners only: a `principal`")
}

// who is in whose name something is asked, and the owner who asks, if that is
// somebody else.
func (f *asOther) who() (principal, by string, err error) {
	me := identity.LocalName()
	if f.as == "" || f.as == me {
		return me, "", nil
	}
	if !identity.ValidName(f.as) {
		return "", "", usage("a principal is a name such as "+me, "--as %s cannot be the name of a principal", diag.Quote(f.as))
	}
	return f.as, me, checkOwner("only the owner may ask in the name of others")
}

// checkOwner refuses what only the owner of this home may do.
func checkOwner(rule string) error {
	h, err := home.Find()
	if err != nil {
		return err
	}
	if err = identity.CheckOwner(h.Root()); errors.Is(err, identity.ErrNotOwner) {
		return no("do it as the user who owns "+h.Dir(), "%s: %w", rule, err)
	}
	return err
}
