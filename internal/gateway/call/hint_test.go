package call

import (
	"testing"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

func TestHintFor(t *testing.T) {
	own := Refuse("act", ServerDrifted, "x")
	set := Refuse("act", ServerDrifted, "x")
	set.Hint, set.Command = "store it", diag.Command{Verb: "secret set", Arg: "A B"}
	replaced := Refuse("act", ServerDrifted, "x")
	replaced.Hint = "put it on the PATH"
	accept := "to see the difference, run ambit verify; if you accept the difference, run: ambit lock "
	for _, tt := range []struct {
		refusal        *Refusal
		manifest, want string
	}{
		{own, "", accept + "PATH"},
		{own, "a b.json", accept + "'a b.json'"},
		{set, "a.json", "store it: ambit secret set a.json 'A B'"},
		{replaced, "a.json", "put it on the PATH"},
		{set.Deny("gate").Refusal(), "a.json", "store it: ambit secret set a.json 'A B'"},
		{Reason{Code: ServerDrifted}.Refusal(), "", accept + "PATH"},
	} {
		if got := tt.refusal.HintFor(tt.manifest); got != tt.want {
			t.Errorf("the hint of %+v is %q, want %q", tt.refusal, got, tt.want)
		}
	}
}
