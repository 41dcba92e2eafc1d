package call_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ambit-run/ambit/internal/gateway/call"
)

func TestDocument(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"complete result", `{"content":[{"type":"text","text":"a"}],"structuredContent":{"n":1},"other":2}`, `{"call_id":"x","content":[{"type":"text","text":"a"}],"duration_ms":1500,"is_error":true,"structuredContent":{"n":1}}`},
		{"no content", `{}`, `{"call_id":"x","content":[],"duration_ms":1500,"is_error":true}`},
		{"content is not a list", `{"content":"a"}`, `{"call_id":"x","content":[],"duration_ms":1500,"is_error":true}`},
		{"no result", `nothing`, `{"call_id":"x","content":[],"duration_ms":1500,"is_error":true}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := call.Result{Raw: []byte(tt.raw), IsError: true, Duration: 1500 * time.Millisecond}
			if got, err := json.Marshal(r.Document("x")); err != nil || string(got) != tt.want {
				t.Errorf("got %s, want %s: %v", got, tt.want, err)
			}
		})
	}
}
