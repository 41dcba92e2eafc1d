package identity

import "testing"

// A text that is taken for a key has an id in it, and is its only spelling.
func FuzzKeyText(f *testing.F) {
	f.Add(newText(newID()))
	f.Add(keyPrefix)
	f.Add(keyPrefix + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := idOf(text)
		if !ok {
			return
		}
		if len(id) != idLength || len(text) != keyLength || checksum(text[:keyLength-sumWidth]) != text[keyLength-sumWidth:] {
			t.Errorf("%d bytes passed for a key", len(text))
		}
	})
}
