package cli

import (
	"crypto/ed25519"
	"encoding/base64"

	"github.com/spf13/cobra"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/identity"
)

func newWhoami(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		GroupID: groupRun,
		Short:   "Tell who calls from here, and by which key this ambit signs",
		Long: "Tell who calls from here: the name that grants and the journal use, and the public key that programs see with it.\n" +
			"signer is the key by which this ambit signs grants and the journal.",
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			h, err := home.Find()
			if err != nil {
				return &failure{code: exitMissing, err: err}
			}
			keys, err := identity.OpenKeys(h.Root())
			if err != nil {
				return notOpened(h, "", err)
			}
			name := identity.LocalName()
			signer := base64.StdEncoding.EncodeToString(keys.Signer().Public().(ed25519.PublicKey))
			if t.json {
				return t.document(map[string]string{"principal": name, "pubkey": keys.PublicOf(name), "signer": signer})
			}
			t.table("", [][]string{{"principal", name}, {"pubkey", keys.PublicOf(name)}, {"signer", signer}})
			return nil
		},
	}
}
