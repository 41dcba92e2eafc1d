package identity

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRoots checks that OpenKeys accepts only files in which each line is a root key. It also checks that the keys can
// decrypt what they encrypted.
func FuzzRoots(f *testing.F) {
	one := base64.StdEncoding.EncodeToString(make([]byte, rootSize))
	for _, s := range []string{one, one + "\n" + one + "\n", one + "\r\n\r\n" + one, one[:20], "", "\n", " " + one + " ", strings.ReplaceAll(one, "=", "")} {
		f.Add([]byte(s), []byte("data"))
	}
	file := filepath.Join(f.TempDir(), "root")
	f.Fuzz(func(t *testing.T, text, data []byte) {
		os.Remove(file) // overwriting an existing file may wait for the disk
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := OpenKeys(file)
		if err != nil {
			if len(text) >= 20 && strings.Contains(err.Error(), string(text)) {
				t.Error("the error quotes the content of the root key file")
			}
			return
		}
		if lines := strings.Count(strings.TrimSpace(string(text)), "\n") + 1; lines != 1+len(k.old) {
			t.Errorf("got %d root keys from %d lines, want one root key for each line", 1+len(k.old), lines)
		}
		for line := range strings.Lines(strings.TrimSpace(string(text))) {
			if line = strings.ReplaceAll(strings.TrimSpace(line), "\r", ""); len(line) != len(one) {
				t.Errorf("%q was accepted as a root key", line)
			}
		}
		sealed := k.Seal("this", data)
		if got, err := k.Open("this", sealed); err != nil || !bytes.Equal(got, data) {
			t.Errorf("Open of the sealed data %q returned %q (error %v), want the same data", data, got, err)
		}
		if _, err := k.Open("that", sealed); err == nil {
			t.Error("data was decrypted for another purpose")
		}
		if _, err := k.Open("this", text); err == nil {
			t.Errorf("%q was accepted as sealed data", text)
		}
	})
}
