package manifest

import (
	"strings"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/manifest/doc"
	"github.com/ambit-run/ambit/internal/manifest/secretlike"
)

// checkHygiene checks every key and string of a manifest for secrets and invisible characters. Secrets that the rules
// of the dialect already masked are not reported again.
func checkHygiene(t *doc.Tree, r *diag.Reporter) {
	// If MayHold returns false, check only the texts that have escapes in the source or are not printable ASCII. The
	// other texts contain no secrets and no invisible characters.
	if secretlike.MayHold(t.Source.Text) {
		for v := range t.All() {
			checkTexts(v, r)
		}
		return
	}
	for v := range t.Odd() {
		checkTexts(v, r)
	}
}

// checkName reports an agent with the reserved name "ambit".
func checkName(v doc.Value, r *diag.Reporter) {
	if !v.Is(doc.String) {
		return
	}
	name := strings.TrimPrefix(v.Text(), "matrix://agent/")
	name, _, _ = strings.Cut(name, "@")
	if agent.Slug(name) == "ambit" {
		r.Report(diag.Reserved, v.Place(), "", "the name %s is reserved for ambit", diag.Quote(v.Text()))
	}
}

func checkTexts(v doc.Value, r *diag.Reporter) {
	checkText(r, v.Key(), func(int, int) diag.Place { return v.KeyPlace() })
	if v.Is(doc.String) {
		checkText(r, v.Text(), v.Within)
	}
}

// maskNamed masks every string whose key is a typical name of a secret, such as "api_key". Diagnostics show source
// lines, and must not show a secret. The rules of a dialect mask secrets only in the fields that they check.
func maskNamed(t *doc.Tree, src *diag.Source) {
	for v := range t.All() {
		text := v.Text()
		if !v.Is(doc.String) || text == "" {
			continue
		}
		if secretlike.Name(v.Key()) && !strings.Contains(text, "$env:") {
			at := v.Place()
			src.Mask(at.Start, at.End)
			continue
		}
		// The name can also be at the start of the text, as in "Authorization: Bearer …", "--api-key …" or "API_KEY=…".
		if i := strings.IndexAny(text, ":= "); i > 0 && i < len(text)-1 && secretlike.Name(text[:i]) &&
			!strings.Contains(text, "$env:") {
			at := v.Within(i+1, len(text))
			src.Mask(at.Start, at.End)
		}
	}
}

func checkText(r *diag.Reporter, s string, place func(start, end int) diag.Place) {
	reported := false
	for _, f := range secretlike.All(s) {
		at := place(f.Start, f.End)
		known := r.Source.Masked(at.Start, at.End)
		r.Source.Mask(at.Start, at.End)
		if !known && !reported {
			reported = true
			r.Report(diag.SecretValue, at, "", "this value looks like a secret: %s", f.Kind)
		}
	}
	if start, end, what := diag.HiddenRun(s); what != "" {
		r.Report(diag.HiddenText, place(start, end), "", "the text contains %s", what)
	}
}
