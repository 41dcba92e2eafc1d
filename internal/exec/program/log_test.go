package program

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/agent"
)

// A program can write a secret that ambit does not know. The log of a program or bundle must not contain it.
func TestUnknownSecretsAreRedacted(t *testing.T) {
	token := "ghp" + "_x7Kd92LmQp4RtVz8Wb3Ns6Yc1Hf5Jg0AeUoI"
	body := "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
	lines := []string{"it is " + token, "-----BEGIN " + "PRIVATE KEY-----", body, "-----END " + "PRIVATE KEY-----", "done"}
	const want = "it is [secret:github-pat]\n[secret:private-key]\n[secret:private-key]\n[secret:private-key]\ndone"
	var log []string
	keep := func(line string) { log = append(log, line) }
	b := &Bundle{agent: &agent.Agent{Program: &agent.Program{}}, options: BundleOptions{Log: keep}, dir: t.TempDir()}
	for name, write := range map[string]func(t *testing.T){
		"a program": func(*testing.T) {
			stderr := &transcript{to: keep, sum: sha256.New()}
			for _, line := range lines {
				stderr.line(line)
			}
		},
		"the stderr of a bundle": func(t *testing.T) {
			r, err := b.prepare(&runCredentials{})
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range lines {
				r.OnStderr(line)
			}
		},
		"the stdout of a bundle": func(*testing.T) {
			b.answer(&run{credentials: &runCredentials{}}, []byte(strings.Join(lines, "\n")), "mark")
		},
	} {
		t.Run(name, func(t *testing.T) {
			log = nil
			if write(t); strings.Join(log, "\n") != want {
				t.Errorf("the log contains\n%s", strings.Join(log, "\n"))
			}
		})
	}
}
