package credential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// canary is a value that must not appear in any output.
const canary = "canary-7f3a9b52c1d8"

func mustNew(t testing.TB, kind Type, value string, hosts ...string) Secret {
	t.Helper()
	s, err := New(kind, value, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSecretIsNotShown checks that no way of printing a secret shows its value or its hosts.
func TestSecretIsNotShown(t *testing.T) {
	s := mustNew(t, Masked, canary, "api.example.com")
	type holder struct {
		Shown  Secret
		hidden Secret
		list   []Secret
	}
	h := holder{s, s, []Secret{s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%5.1s", "%#x"} {
		for _, v := range []any{s, &s, h, &h, []Secret{s}, map[string]Secret{"a": s}, any(s), [1]Secret{s}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	fmt.Fprintln(&out, s, h, errors.Join(fmt.Errorf("x: %v", s)))
	for _, v := range []any{s, h, map[string]any{"s": s}} {
		if text, err := json.Marshal(v); err == nil {
			out.Write(text)
		}
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("a", "secret", s, "holder", h, "pointer", &s)
	}
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), fmt.Sprintf("%q", canary), "example.com"} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%s is shown:\n%s", form, out.String())
		}
	}
	if !strings.Contains(out.String(), hidden) {
		t.Error("nothing was printed")
	}
	if s.Reveal() != canary || s.Type() != Masked || s.IsZero() || !(Secret{}).IsZero() || (Secret{}).String() != "" {
		t.Error("Reveal, Type, IsZero or String returned a wrong value")
	}
}

func TestTypes(t *testing.T) {
	for _, tt := range []struct {
		kind  Type
		value string
		fails string
	}{
		{String, "a b", ""},
		{Masked, "line\nline", ""},
		{JSON, `{"a":1}`, ""},
		{JSON, `"text"`, ""},
		{String, "", "empty"},
		{Masked, "a\x00b", "contains a NUL"},
		{Masked, "\xff" + canary, "not UTF-8 text"},
		{JSON, `{"a":` + canary, "not valid JSON"},
		{JSON, `{"a":1,"a":2}`, "not valid JSON"},
		{JSON, `{} {}`, "not valid JSON"},
		{Masked, strings.Repeat(canary, maxValue), "the limit is"},
		{"number", "1", "unknown type"},
	} {
		_, err := New(tt.kind, tt.value, nil)
		switch {
		case tt.fails == "" && err != nil, tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
			t.Errorf("New(%s) returned error %v, want %q in it", tt.kind, err, tt.fails)
		case err != nil && strings.Contains(err.Error(), canary):
			t.Errorf("the error contains the value: %v", err)
		}
	}
}

func TestFields(t *testing.T) {
	s := mustNew(t, JSON, `{"id": "a\"b", "n": 12345678901234567890, "on": true, "none": null, "in": {"side": "x"}, "in.side": "y", "list": [1], "deep": {"er": {"z": "w"}}}`)
	for name, want := range map[string]string{"id": `a"b`, "n": "12345678901234567890", "on": "true", "in.side": "y", "deep.er.z": "w"} {
		if got, ok := s.Field(name); !ok || got != want {
			t.Errorf("Field(%s) = %q, %v; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "none", "in", "list", "list.0", "id.x", "absent", "deep.er", "deep..z"} {
		if got, ok := s.Field(name); ok {
			t.Errorf("Field(%q) = %q, want no field", name, got)
		}
	}
	if _, ok := mustNew(t, Masked, `{"id":"x"}`).Field("id"); ok {
		t.Error("a plain secret has a field")
	}
	if _, ok := mustNew(t, JSON, `["x"]`).Field("0"); ok {
		t.Error("an array has a field")
	}
}
