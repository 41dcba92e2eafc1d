package manifest

import (
	"github.com/ambit-run/ambit/internal/secretlike"
	"github.com/ambit-run/ambit/manifest/diag"
	"github.com/ambit-run/ambit/manifest/doc"
)

// checkHygiene looks through every text of a manifest for what none may hold.
// It runs last: what a dialect's rule already masked is not reported again.
func checkHygiene(t *doc.Tree, r *diag.Reporter) {
	for v := range t.All() {
		// Most keys and texts are short or plain, and cost nothing more.
		if key := v.Key(); key != "" && !clean(key, v.PlainKey()) {
			checkText(r, key, func(int, int) diag.Place { return v.KeyPlace() })
		}
		if v.Is(doc.String) {
			if text := v.Text(); !clean(text, v.Plain()) {
				checkText(r, text, v.Within)
			}
		}
	}
}

func clean(s string, plain bool) bool { return plain && !secretlike.Find(s).Found() }

func checkText(r *diag.Reporter, s string, place func(start, end int) diag.Place) {
	if f := secretlike.Find(s); f.Found() {
		if at := place(f.Start, f.End); !r.Source.Masked(at.Start, at.End) {
			r.Source.Mask(at.Start, at.End)
			r.Report(diag.SecretValue, at, "", "this looks like a secret: %s", f.Kind)
		}
	}
	if start, end, what := diag.HiddenRun(s); what != "" {
		r.Report(diag.HiddenText, place(start, end), "", "the text holds %s", what)
	}
}
