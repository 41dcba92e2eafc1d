package matrix

import (
	"strings"
	"testing"
)

// A manifest can identify its agent by the did:key of an Ed25519 key. The base58 text of the key is then the agent's
// name.
func TestDIDKey(t *testing.T) {
	const key = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
	m := &AgentManifest{Agent: "did:key:" + key}
	if a := m.Compile(); !isDIDKey(m.Agent) || a.ID != m.Agent || a.Name != key || !isAgentName(a.Name) {
		t.Errorf("got the id %q and the name %q, want %q and %q", a.ID, a.Name, m.Agent, key)
	}
	for _, text := range []string{
		"", "did:key:", "did:key:z", key, "did:web:" + key, "did:key:" + key[1:], "did:key:" + key + "K", "did:key:" + key[:47],
		"did:key:" + key[:47] + "0", "did:key:z7" + key[2:], "did:key:z6MZ" + key[4:], "did:key:f" + key[1:], "did:key:" + key + "#" + key,
		"did:key:z" + strings.Repeat("1", 47), "did:key:z" + strings.Repeat("z", 47),
	} {
		if isDIDKey(text) {
			t.Errorf("%q is accepted", text)
		}
	}
}
