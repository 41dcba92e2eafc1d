package cli

import (
	"crypto/ed25519"
	"encoding/base64"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/home"
	"github.com/ambit-run/ambit/internal/identity"
)

func newWhoami(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		GroupID: groupRun,
		Short:   "Tell who calls from here, and by which key this ambit signs",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Find()
			if err != nil {
				return &failure{code: exitMissing, err: err}
			}
			keys, err := identity.OpenKeys(h.Root())
			if err != nil {
				return &failure{code: exitMissing, err: err}
			}
			public := base64.StdEncoding.EncodeToString(keys.Signer().Public().(ed25519.PublicKey))
			if t.json {
				return t.document(map[string]string{"principal": identity.LocalName(), "pubkey": public})
			}
			t.table("", [][]string{{"principal", identity.LocalName()}, {"pubkey", public}})
			return nil
		},
	}
}
