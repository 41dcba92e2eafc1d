//go:build prove

package pii_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ambit-run/ambit/internal/gateway/guard/pii"
)

// corpus decodes one of the public corpora in the folder CORPORA.
func corpus(t *testing.T, name string, into any) {
	t.Helper()
	folder := os.Getenv("CORPORA")
	if folder == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("the environment variable CORPORA is not set")
		}
		t.Skip("set the environment variable CORPORA to the folder with the corpora")
	}
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// recognizers lists the recognizers of Presidio for which ambit has a category. For each recognizer, it gives the
// category and the name of a JSON member that typically contains such a number.
var recognizers = map[string]struct{ category, key string }{
	"credit_card_recognizer":               {pii.CreditCard, ""},
	"crypto_recognizer":                    {pii.Wallet, ""},
	"email_recognizer":                     {pii.Email, ""},
	"iban_recognizer":                      {pii.IBAN, ""},
	"ip_recognizer":                        {pii.IPAddress, ""},
	"mac_recognizer":                       {pii.MACAddress, ""},
	"phone_recognizer":                     {pii.Phone, ""},
	"ph_mobile_number_recognizer":          {pii.Phone, "mobile"},
	"tr_phone_number_recognizer":           {pii.Phone, "phone"},
	"au_abn_recognizer":                    {pii.NationalID, "abn"},
	"au_acn_recognizer":                    {pii.NationalID, "acn"},
	"au_medicare_recognizer":               {pii.NationalID, "medicare"},
	"au_tfn_recognizer":                    {pii.NationalID, "tfn"},
	"ca_sin_recognizer":                    {pii.NationalID, "sin"},
	"de_health_insurance_recognizer":       {pii.NationalID, "kvnr"},
	"de_id_card_recognizer":                {pii.NationalID, "personalausweis"},
	"de_social_security_recognizer":        {pii.NationalID, ""},
	"de_tax_id_recognizer":                 {pii.NationalID, "steuer_id"},
	"es_nie_recognizer":                    {pii.NationalID, ""},
	"es_nif_recognizer":                    {pii.NationalID, "nif"},
	"fi_personal_identity_code_recognizer": {pii.NationalID, "hetu"},
	"in_aadhaar_recognizer":                {pii.NationalID, "aadhaar"},
	"in_gstin_recognizer":                  {pii.NationalID, ""},
	"in_pan_recognizer":                    {pii.NationalID, "pan"},
	"in_voter_recognizer":                  {pii.NationalID, "voter_id"},
	"it_fiscal_code_recognizer":            {pii.NationalID, "codice_fiscale"},
	"kr_frn_recognizer":                    {pii.NationalID, "foreigner_registration"},
	"kr_rrn_recognizer":                    {pii.NationalID, "rrn"},
	"ng_nin_recognizer":                    {pii.NationalID, "nin"},
	"pl_pesel_recognizer":                  {pii.NationalID, ""},
	"se_personnummer_recognizer":           {pii.NationalID, "personnummer"},
	"sg_fin_recognizer":                    {pii.NationalID, "nric"},
	"th_tnin_recognizer":                   {pii.NationalID, "thai_id"},
	"tr_national_id_recognizer":            {pii.NationalID, ""},
	"uk_driving_licence_recognizer":        {pii.NationalID, ""},
	"uk_nhs_recognizer":                    {pii.NationalID, "nhs_number"},
	"uk_nino_recognizer":                   {pii.NationalID, ""},
	"us_itin_recognizer":                   {pii.NationalID, "itin"},
	"us_mbi_recognizer":                    {pii.NationalID, ""},
	"us_npi_recognizer":                    {pii.NationalID, "npi"},
	"us_ssn_recognizer":                    {pii.NationalID, "ssn"},
	"za_id_number_recognizer":              {pii.NationalID, ""},
	"de_passport_recognizer":               {pii.Passport, "passport"},
	"es_passport_recognizer":               {pii.Passport, "passport"},
	"in_passport_recognizer":               {pii.Passport, "passport"},
	"it_passport_recognizer":               {pii.Passport, "passport"},
	"kr_passport_recognizer":               {pii.Passport, "passport"},
	"uk_passport_recognizer":               {pii.Passport, "passport"},
	"us_passport_recognizer":               {pii.Passport, "passport"},
}

// oneCountry lists recognizers that find only the numbers of one country, whereas ambit finds the numbers of every
// country. A text in which such a recognizer must find nothing can contain a number of another country, so the test
// skips the text.
var oneCountry = map[string]bool{
	"ph_mobile_number_recognizer": true, "tr_phone_number_recognizer": true, "kr_frn_recognizer": true, "kr_rrn_recognizer": true,
	"de_passport_recognizer": true, "es_passport_recognizer": true, "in_passport_recognizer": true, "it_passport_recognizer": true,
	"kr_passport_recognizer": true, "uk_passport_recognizer": true, "us_passport_recognizer": true,
}

// The map otherwise contains the vectors for which ambit deliberately differs from Presidio. A key is the
// start of a vector's hash, and a value is the reason.
var otherwise = map[string]string{
	"f33598dd": "the number is a valid Turkish id with two correct check digits",
	"69689e80": "an IP address does not have five parts",
	"37a71912": "with other settings, Presidio itself expects two findings in the same text",
	"9f50fa16": "with other settings, Presidio itself expects two findings in the same text",
	"44897d3a": "with other settings, Presidio itself expects two findings in the same text",
	"5189b9f5": "lower-case words and numbers in prose are written like this",
	"ba892b5b": "part numbers are written like this",
}

type score struct{ right, wrong, missed int }

func (s score) precision() float64 { return ratio(s.right, s.right+s.wrong) }
func (s score) recall() float64    { return ratio(s.right, s.right+s.missed) }

func ratio(a, b int) float64 {
	if b == 0 {
		return 1
	}
	return float64(a) / float64(b)
}

// TestCorporaPresidioVectors runs the test vectors of Presidio. In Presidio, only one recognizer sees each text. Here,
// all checks of a category see it. The member name identifies a number without a check digit.
func TestCorporaPresidioVectors(t *testing.T) {
	var rows []struct {
		File   string
		Fields []string
		Row    []any
	}
	corpus(t, "presidio-vectors.json.gz", &rows)
	byFile, byCategory, met := map[string]*score{}, map[string]*score{}, map[string]bool{}
	for _, row := range rows {
		r, ok := recognizers[row.File]
		if !ok || len(row.Row) < 2 {
			continue
		}
		text, ok := row.Row[0].(string)
		if !ok {
			continue
		}
		want, ok := row.Row[1].(float64)
		if !ok || want == 0 && oneCountry[row.File] {
			continue
		}
		f, err := pii.New([]string{r.category})
		if err != nil {
			t.Fatal(err)
		}
		got := len(f.Find([]byte(text), []byte(r.key), nil))
		for _, m := range []struct {
			of   map[string]*score
			name string
		}{{byFile, row.File}, {byCategory, r.category}} {
			s := m.of[m.name]
			if s == nil {
				s = &score{}
				m.of[m.name] = s
			}
			s.right += min(got, int(want))
			s.wrong += max(0, got-int(want))
			s.missed += max(0, int(want)-got)
		}
		if got == int(want) {
			continue
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", row.File, int(want), text))
		name := hex.EncodeToString(sum[:4])
		if os.Getenv("VERBOSE") != "" {
			t.Logf("%s %s: %d, want %.0f: %q", name, row.File, got, want, text)
		}
		if otherwise[name] == "" {
			t.Errorf("%s: in the vector of %s, %s, got %d findings, want %.0f", name, row.File, text, got, want)
		}
		met[name] = true
	}
	for name, why := range otherwise {
		if !met[name] {
			t.Errorf("%s: no test vector needs this exception any longer: %s", name, why)
		}
	}
	report(t, byFile, 0, 0)
	report(t, byCategory, 0.97, 0.98)
}

func report(t *testing.T, scores map[string]*score, precision, recall float64) {
	var names []string
	for n := range scores {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		s := scores[n]
		t.Logf("%-38s %4d right %3d wrong %3d missed   precision %.3f recall %.3f", n, s.right, s.wrong, s.missed, s.precision(), s.recall())
		if s.precision() < precision || s.recall() < recall {
			t.Errorf("%s is below precision %.2f or recall %.2f", n, precision, recall)
		}
	}
}

// TestCorporaPresidioSynthetic runs all categories over synthetic texts with labeled spans.
func TestCorporaPresidioSynthetic(t *testing.T) {
	var texts []struct {
		Text  string `json:"full_text"`
		Spans []struct {
			Type  string `json:"entity_type"`
			Start int    `json:"start_position"`
			End   int    `json:"end_position"`
		} `json:"spans"`
	}
	corpus(t, "presidio-synth-v2.json.gz", &texts)
	ours := map[string]string{
		"CREDIT_CARD": pii.CreditCard, "PHONE_NUMBER": pii.Phone, "EMAIL_ADDRESS": pii.Email, "IBAN_CODE": pii.IBAN,
		"US_SSN": pii.NationalID, "IP_ADDRESS": pii.IPAddress,
	}
	f, err := pii.New(pii.Categories)
	if err != nil {
		t.Fatal(err)
	}
	scores := map[string]*score{}
	for _, c := range ours {
		scores[c] = &score{}
	}
	for _, x := range texts {
		// The positions in the corpus count characters, not bytes.
		runes := []rune(x.Text)
		offset := func(n int) int { return len(string(runes[:min(n, len(runes))])) }
		found := f.Find([]byte(x.Text), nil, nil)
		used := make([]bool, len(found))
		for _, s := range x.Spans {
			c, ok := ours[s.Type]
			if !ok {
				continue
			}
			start, end := offset(s.Start), offset(s.End)
			hit := false
			for i, g := range found {
				if g.Category == c && g.Start < end && g.End > start {
					hit, used[i] = true, true
				}
			}
			if hit {
				scores[c].right++
			} else {
				scores[c].missed++
				if os.Getenv("VERBOSE") != "" {
					t.Logf("missed %s %q in %.100q", c, x.Text[start:end], x.Text)
				}
			}
		}
		for i, g := range found {
			if s := scores[g.Category]; s != nil && !used[i] {
				s.wrong++
				if os.Getenv("VERBOSE") != "" {
					t.Logf("wrong %s %q in %.100q", g.Category, x.Text[g.Start:g.End], x.Text)
				}
			}
		}
	}
	report(t, scores, 0.99, 0.99)
}
