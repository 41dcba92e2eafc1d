package view

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// LookAlike is a word in which some letters only look like ASCII letters, so that people read it as another word.
type LookAlike struct {
	Word string
	// Reads is the ASCII word that people read.
	Reads string
}

// LookAlikes returns the words of a text that look like ASCII words but contain other letters, such as раypal with
// Cyrillic letters. It returns each word once, and at most the given number of words. Accents alone do not make a
// word a look-alike.
func LookAlikes(text string, most int) (found []LookAlike) {
	seen := map[string]bool{}
	var v View
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !unicode.IsNumber(r)
	}) {
		if len(found) == most {
			break
		}
		if ASCII([]byte(word)) || seen[word] || !v.Normal([]byte(word)) || withoutAccents(word) == string(v.Text) {
			continue
		}
		if reads := string(v.Text); mixesAlphabets(word) || ASCII(v.Text) && len(reads) > 2 {
			seen[word] = true
			found = append(found, LookAlike{word, reads})
		}
	}
	return found
}

func withoutAccents(word string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(word))
}

// alphabets lists scripts with letters that look like ASCII. No language mixes such a script with ASCII in one word.
var alphabets = []*unicode.RangeTable{
	unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Cyrillic, unicode.Greek,
}

// mixesAlphabets reports whether a word contains ASCII letters and letters of another alphabet.
func mixesAlphabets(word string) bool {
	ascii, other := false, false
	for _, r := range word {
		ascii = ascii || r <= unicode.MaxASCII && unicode.IsLetter(r)
		other = other || unicode.In(r, alphabets...)
	}
	return ascii && other
}
