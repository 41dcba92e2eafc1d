package call_test

import (
	"encoding/json"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

// The document of any result, valid or not, can be marshaled and has a list as its content.
func FuzzDocument(f *testing.F) {
	for _, s := range []string{`{"content":[{"type":"text","text":"a"}],"structuredContent":{"n":1}}`, `{"content":{}}`, `{"content":null,"structuredContent":null}`, `nothing`, `{"CONTENT":[ ]}`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		text, err := json.Marshal(call.Result{Raw: raw}.Document("x"))
		var doc struct {
			ID      string            `json:"call_id"`
			Content []json.RawMessage `json:"content"`
		}
		if err != nil || json.Unmarshal(text, &doc) != nil || doc.ID != "x" || doc.Content == nil {
			t.Errorf("%q becomes %s, %v", raw, text, err)
		}
	})
}
