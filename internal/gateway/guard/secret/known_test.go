package secret_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/secret"
)

func known(t *testing.T, values ...secret.Value) *secret.Known {
	t.Helper()
	k, err := secret.NewKnown(values)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Replace replaces a value in any encoding with its name.
func TestReplaceKnown(t *testing.T) {
	const value = "correct horse/battery+staple"
	k := known(t, secret.Value{Name: "A", Secret: value}, secret.Value{Name: "LONG", Secret: value + " and more"}, secret.Value{Name: "SHORT", Secret: "1"})
	name := func(n string) string { return "<" + n + ">" }
	for form, text := range map[string]string{
		"as it is": value, "query": url.QueryEscape(value), "path": url.PathEscape(value), "small escapes": strings.ToLower(url.QueryEscape(value)),
		"hex": hex.EncodeToString([]byte(value)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(value))),
	} {
		if got := k.Replace("x "+text+" y "+text, name); got != "x <A> y <A>" {
			t.Errorf("%s: got %q", form, got)
		}
	}
	if got := k.Replace(value+" and more, 1", name); got != "<LONG>, 1" {
		t.Errorf("of two overlapping values, the longer must be replaced: got %q", got)
	}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("b", before) + value + "!"))
		if got := k.Replace(text, name); !strings.Contains(got, "<A>") || len(got) > before+12 {
			t.Errorf("base64 after %d bytes: got %q", before, got)
		}
	}
	if got := k.Replace("nothing of it", name); got != "nothing of it" {
		t.Errorf("got %q", got)
	}
	var none *secret.Known
	if got := none.Replace(value, name); got != value {
		t.Errorf("got %q", got)
	}
}

func TestFindKnown(t *testing.T) {
	k := known(t, secret.Value{Name: "A", Secret: "correct horse"}, secret.Value{Name: "KEY", Secret: "line one\nline two"})
	if got := k.Find([]byte("a correct horse, line one\nline two")); !slices.Equal(got, [][2]int{{2, 15}, {17, 34}}) {
		t.Errorf("got %v", got)
	}
	if k.InLine() || k.Longest() < 2*len("line one\nline two") {
		t.Errorf("InLine() = %t, Longest() = %d", k.InLine(), k.Longest())
	}
	if one := known(t, secret.Value{Name: "A", Secret: "correct horse"}); !one.InLine() {
		t.Error("InLine() = false for a value without a line break")
	}
	if none := known(t); none.Find([]byte("x")) != nil || none.Longest() != 0 || !none.InLine() {
		t.Error("an empty Known found a value")
	}
}
