package identity

import "testing"

// FuzzKeyText checks that idOf accepts only strings with the length and the checksum of a key.
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
			t.Errorf("idOf accepted a string of %d bytes that is not a key", len(text))
		}
	})
}
