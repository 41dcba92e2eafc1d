package pack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSetDigests(t *testing.T) {
	before, err := os.ReadFile(filepath.Join("testdata", "edit.json"))
	check(t, err)
	pins := []Pin{
		{"joined", "2.0.0", digestOf([]byte("1"))},
		{"plain", "2.0.0", digestOf([]byte("2"))},
		{"python", "2.0.0", digestOf([]byte("3"))},
		{"moving", "2.0.0", ""},
		{"local", "", digestOf([]byte("4"))},
		{"bare", "2.0.0", ""},
	}
	after, err := SetDigests(before, pins)
	check(t, err)
	golden := filepath.Join("testdata", "edit.golden.json")
	if *update {
		check(t, os.WriteFile(golden, after, 0o644))
	}
	want, err := os.ReadFile(golden)
	check(t, err)
	if string(after) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", after, want)
	}
	if again, err := SetDigests(after, pins); err != nil || string(again) != string(after) {
		t.Errorf("setting the same pins again changed the manifest: %v\n%s", err, again)
	}
	if same, err := SetDigests(before, nil); err != nil || string(same) != string(before) {
		t.Errorf("the manifest changed although there are no pins: %v\n%s", err, same)
	}
	marked := "\uFEFF" + string(before)
	if got, err := SetDigests([]byte(marked), pins); err != nil || string(got) != "\uFEFF"+string(after) {
		t.Errorf("a manifest with a byte order mark was not edited correctly: %v", err)
	}
}

func TestSetDigestsRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no such server", `{"servers":[{"alias":"b"}]}`, "no server with this alias"},
		{"no servers", `{}`, "no server with this alias"},
		{"duplicate alias", `{"servers":[{"alias":"a"},{"alias":"a"}]}`, "two servers"},
		{"no digest", `{"servers":[{"alias":"a","version":"1.0.0"}]}`, "package_digest"},
		{"not JSON", `{"servers":[{"alias":"a",}]}`, "not valid JSON"},
		{"duplicate key", `{"servers":[{"alias":"a","version":"1","version":"2"}]}`, "not valid JSON"},
		{"invalid UTF-8", "\xff", "UTF-8"},
	} {
		_, err := SetDigests([]byte(c.text), []Pin{{Alias: "a", Version: "2.0.0", Digest: digestOf(nil)}})
		if !errors.Is(err, ManifestUnfit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got the error %v, want %q", c.name, err, c.want)
		}
	}
}
