package manifest

import (
	"strings"

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
	if r.Any() {
		maskNamed(t, r)
	}
}

// maskNamed keeps what its name says to be a secret out of every frame, also
// where it stands in a place or shape that no rule expects.
func maskNamed(t *doc.Tree, r *diag.Reporter) {
	for v := range t.All() {
		text := v.Text()
		if !v.Is(doc.String) || text == "" {
			continue
		}
		if secretlike.Name(v.Key()) && !strings.Contains(text, "$env:") {
			at := v.Place()
			r.Source.Mask(at.Start, at.End)
			continue
		}
		// "Authorization: Bearer …", "--api-key …", "API_KEY=…".
		if i := strings.IndexAny(text, ":= "); i > 0 && i < len(text)-1 && secretlike.Name(text[:i]) && !strings.Contains(text, "$env:") {
			at := v.Within(i+1, len(text))
			r.Source.Mask(at.Start, at.End)
		}
	}
}

func clean(s string, plain bool) bool { return plain && !secretlike.Find(s).Found() }

func checkText(r *diag.Reporter, s string, place func(start, end int) diag.Place) {
	told := false
	for _, f := range secretlike.All(s) {
		at := place(f.Start, f.End)
		known := r.Source.Masked(at.Start, at.End)
		r.Source.Mask(at.Start, at.End)
		if !known && !told {
			told = true
			r.Report(diag.SecretValue, at, "", "this looks like a secret: %s", f.Kind)
		}
	}
	if start, end, what := diag.HiddenRun(s); what != "" {
		r.Report(diag.HiddenText, place(start, end), "", "the text holds %s", what)
	}
}
