package pii

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// sample returns a random number of the given form. If valid is false, the number has the form, but the check refuses
// it.
func sample(r *rand.Rand, form string, ok check, valid bool) string {
	var countries []string // the countries whose IBANs have this length
	for c := range strings.FieldsSeq(ibanLengths) {
		if len(form) > 14 && strings.HasPrefix(form, "AA99") && c[2:] == fmt.Sprint(len(strings.NewReplacer(" ", "", "-", "").Replace(form))) {
			countries = append(countries, c[:2])
		}
	}
	if len(form) > 14 && strings.HasPrefix(form, "AA99") && countries == nil {
		return ""
	}
	misses := 0
	for range 1_000_000 {
		text := make([]byte, len(form))
		var compact []byte
		for i := range len(form) {
			switch c := form[i]; c {
			case '9':
				text[i] = byte('0' + r.IntN(10))
			case 'A':
				text[i] = byte('A' + r.IntN(26))
			case 'X':
				text[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[r.IntN(36)]
			default:
				text[i] = c
				continue
			}
			if countries != nil && i < 2 {
				text[i] = countries[0][i]
			}
			compact = append(compact, text[i])
		}
		if ok(compact) && !(allDigits(compact) && isTime(compact)) {
			if valid {
				return string(text)
			}
			if misses++; misses > 20 {
				return "" // every number of this form passes the check, because it has no check digit
			}
			// Change the last character of the number.
			last := len(compact) - 1
			for c := range "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ" {
				wrong := "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[c]
				if digit(wrong) != digit(compact[last]) {
					continue
				}
				if compact[last] = wrong; !ok(compact) {
					text[len(text)-1] = wrong
					return string(text)
				}
			}
		}
	}
	return ""
}

// Every kind of number is found in each of its forms, with each of its labels and, if the form is marked, without a
// label. A number with a wrong check digit is not found. A number that needs a label is not found without it.
func TestEveryRow(t *testing.T) {
	for category, rows := range map[string][]id{CreditCard: cards, IBAN: ibans, NationalID: ids} {
		f, err := New([]string{category})
		if err != nil {
			t.Fatal(err)
		}
		found := func(text, key string) bool { return len(f.Find([]byte(text), []byte(key), nil)) > 0 }
		for i, row := range rows {
			t.Run(row.country+" "+row.name, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(uint64(i), 3))
				list := forms(row.forms)
				for _, form := range list {
					bare := strings.Trim(form, "!^") != form
					form = strings.Trim(form, "!^")
					number := sample(r, form, row.ok, true)
					if number == "" {
						continue // no number has this length, for example no IBAN has 17 characters
					}
					for label := range strings.SplitSeq(row.labels, ", ") {
						if text := label + ": " + number + "."; !found(text, "") {
							t.Errorf("%q is not found", text)
						}
						if key := strings.ReplaceAll(label, " ", "_"); !found(number, key) {
							t.Errorf("%q is not found in the member %s", number, key)
						}
					}
					if got := found("it says "+number+" there", ""); bare && !got {
						t.Errorf("%q is not found without a label", number)
					}
					if !bare && !strings.Contains(rows[0].forms, "!"+form) {
						// Another row may accept some of these numbers without a label, but not most of them.
						wrong := 0
						for range 20 {
							if found("it says "+sample(r, form, row.ok, true)+" there", "") {
								wrong++
							}
						}
						if wrong > 4 {
							t.Errorf("%d of 20 numbers such as %q are found without a label", wrong, number)
						}
					}
					if near := sample(r, form, row.ok, false); near != "" {
						wrong := 0
						for range 20 {
							if found(strings.Split(row.labels, ", ")[0]+" "+sample(r, form, row.ok, false), "") {
								wrong++
							}
						}
						if wrong > 4 && !isRelaxed(rows, row) {
							t.Errorf("%d of 20 numbers such as %q with a wrong check digit are found", wrong, near)
						}
					}
				}
			})
		}
	}
}

// isRelaxed reports whether another row with the same label accepts numbers with a wrong check digit, or has another
// check for the same form.
func isRelaxed(rows []id, row id) bool {
	first, _, _ := strings.Cut(row.labels, ", ")
	for _, other := range rows {
		if other.name != row.name && strings.Contains(", "+other.labels+",", ", "+first+",") {
			return true
		}
	}
	return false
}

// Every row is complete, and each country and name occurs once. Labels are words in lower case.
func TestRowsAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, rows := range [][]id{cards, ibans, ids} {
		for _, row := range rows {
			if key := fmt.Sprint(row.country, row.name); seen[key] || row.ok == nil || row.labels == "" {
				t.Errorf("%s %s is incomplete or exists twice", row.country, row.name)
			} else {
				seen[key] = true
			}
			for _, form := range forms(row.forms) {
				if n := strings.Count(form, "9") + strings.Count(form, "A") + strings.Count(form, "X"); n < 7 || n > maxCompact {
					t.Errorf("%s %s: the form %s has %d characters", row.country, row.name, form, n)
				}
			}
			if row.labels != strings.ToLower(row.labels) {
				t.Errorf("%s %s: labels are in lower case", row.country, row.name)
			}
		}
	}
	for word := range directLabels {
		if word != strings.ToLower(word) || len(word) > 16 {
			t.Errorf("no sample of %q was found", word)
		}
	}
}

// The table in the guide is current.
func TestGuideListsEveryRow(t *testing.T) {
	const file, begin, end = "../../../../docs/guides/personal-data.md", "<!-- numbers -->\n", "<!-- /numbers -->\n"
	var want strings.Builder
	want.WriteString("| country | number | found without a label | found with a label | labels |\n|---|---|---|---|---|\n")
	for _, row := range ids {
		var written [2][]string
		for form := range strings.SplitSeq(row.forms, "|") {
			text := strings.Trim(form, "!^")
			i := 1
			if text != form {
				i = 0
			}
			written[i] = append(written[i], "`"+strings.ReplaceAll(text, "~", "␣")+"`")
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s | %s |\n", row.country, row.name, strings.Join(written[0], " "), strings.Join(written[1], " "), row.labels)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("%s does not contain the marks of the table", file)
	}
	if page := before + begin + want.String() + end + after; page != string(text) {
		if !*update {
			t.Fatalf("%s does not list every number; run: go generate ./internal/gateway/guard/pii", file)
		}
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
