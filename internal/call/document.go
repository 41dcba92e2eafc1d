package call

import "encoding/json"

// Document is the result of a call as every face tells it: ambit call --json and
// the daemon's API. Its fields are a contract.
func (r Result) Document(id string) map[string]any {
	doc := map[string]any{"call_id": id, "duration_ms": r.Duration.Milliseconds(), "is_error": r.IsError}
	var raw struct {
		Content           json.RawMessage `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if json.Unmarshal(r.Raw, &raw) != nil || len(raw.Content) == 0 || raw.Content[0] != '[' {
		raw.Content = json.RawMessage("[]")
	}
	doc["content"] = raw.Content
	if raw.StructuredContent != nil {
		doc["structuredContent"] = raw.StructuredContent
	}
	return doc
}
