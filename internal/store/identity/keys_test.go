package identity

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func openKeys(t *testing.T, file string) *Keys {
	t.Helper()
	k, err := OpenKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysAreMadeOnceAndStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys", "root")
	first, second := openKeys(t, file), openKeys(t, file)
	if !first.Signer().Equal(second.Signer()) {
		t.Error("opening the root key again returned another key")
	}
	if other := openKeys(t, filepath.Join(t.TempDir(), "root")); other.Signer().Equal(first.Signer()) {
		t.Error("two homes have the same key")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	hidden, err2 := filepath.Glob(filepath.Join(filepath.Dir(file), ".*"))
	if errors.Join(err, err2) != nil || len(left) != 1 || len(hidden) != 0 {
		t.Errorf("the directory contains %v and %v (error %v), want only the root key",
			left, hidden, errors.Join(err, err2))
	}
}

func TestRootIsForItsUserAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such permission bits: a user's directories are private by default")
	}
	file := filepath.Join(t.TempDir(), "home", "keys", "root")
	openKeys(t, file)
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700, filepath.Dir(filepath.Dir(file)): 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %v, want %v", filepath.Base(path), got, want)
		}
	}
}

// If several processes create the root key at the same time, all of them must get the same root key.
func TestRootIsMadeByOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys", "root")
	keys := make([]*Keys, 16)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			<-start
			var err error
			if keys[i], err = OpenKeys(file); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	for _, k := range keys {
		if k == nil || !k.Signer().Equal(keys[0].Signer()) {
			t.Fatal("two processes have different keys")
		}
	}
}

func TestDamagedRootIsRefusedAndKept(t *testing.T) {
	secret := strings.Repeat("s3cret", 4)
	for _, tt := range []struct{ name, text string }{
		{"empty", ""},
		{"not base64", secret + "!"},
		{"too short", base64.StdEncoding.EncodeToString([]byte(secret))},
		{"too long", base64.StdEncoding.EncodeToString([]byte(secret + secret))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "root")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := OpenKeys(file)
			if err == nil {
				t.Fatal("OpenKeys accepted a damaged root key")
			}
			if strings.Contains(err.Error(), secret[:6]) {
				t.Error("the error quotes the content of the root key file")
			}
			if text, _ := os.ReadFile(file); string(text) != tt.text {
				t.Error("the damaged root key file was changed")
			}
		})
	}
}

// Later versions must be able to decrypt and verify data from this version.
func TestDerivationIsFixed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root")
	root := bytes.Repeat([]byte{7}, rootSize)
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(root)+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := openKeys(t, file)
	mac := k.MAC("purpose", []byte("data"))
	for name, pair := range map[string][2]string{
		"the signing key": {hex.EncodeToString(k.Signer().Public().(ed25519.PublicKey)), "261e57bc6407dbeb584fec28a532f4a5b598e54cf3c13db83537f7c068ec07e7"},
		"the MAC":         {hex.EncodeToString(mac[:]), "54071f16201ffbcb8d8c828e43b4f0061b975853f480ece232125b12b04c7109"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %s, want %s", name, pair[0], pair[1])
		}
	}
	sealed, err := hex.DecodeString("9498d610ed0d6608f784a3dc9206674e9cccff5dd7b21a65467aa849082e17b9")
	if err != nil {
		t.Fatal(err)
	}
	if data, err := k.Open("purpose", sealed); err != nil || string(data) != "data" {
		t.Errorf("decrypting data of an earlier version: got %q (error %v), want the original data", data, err)
	}
}

func TestSeal(t *testing.T) {
	dir := t.TempDir()
	k, other := openKeys(t, filepath.Join(dir, "a")), openKeys(t, filepath.Join(dir, "b"))
	data := []byte("arguments of a call")
	sealed := k.Seal("call", data)
	if bytes.Contains(sealed, data) {
		t.Error("the sealed data contains the plain text")
	}
	if bytes.Equal(sealed, k.Seal("call", data)) {
		t.Error("sealing the same data twice results in the same bytes")
	}
	if got, err := k.Open("call", sealed); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Open returned %q, %v", got, err)
	}
	if got, err := k.Open("call", k.Seal("call", nil)); err != nil || len(got) != 0 {
		t.Errorf("opening sealed empty data: got %q (error %v), want empty data", got, err)
	}
	refused := func(name string, k *Keys, purpose string, sealed []byte) {
		t.Helper()
		if got, err := k.Open(purpose, sealed); !errors.Is(err, ErrSealed) || got != nil {
			t.Errorf("%s: got %q, error %v; want ErrSealed", name, got, err)
		}
	}
	refused("another purpose", k, "approval", sealed)
	refused("another root", other, "call", sealed)
	refused("nothing", k, "call", nil)
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		refused("a bit changed", k, "call", bad)
		refused("cut short", k, "call", sealed[:i])
	}
	refused("longer", k, "call", append(bytes.Clone(sealed), 0))
}

func TestMAC(t *testing.T) {
	dir := t.TempDir()
	k, other := openKeys(t, filepath.Join(dir, "a")), openKeys(t, filepath.Join(dir, "b"))
	mac := k.MAC("ab", []byte("c"))
	if mac != k.MAC("ab", []byte("c")) {
		t.Error("MAC returned different hashes for the same data")
	}
	if mac == other.MAC("ab", []byte("c")) {
		t.Error("the hash does not depend on the root key")
	}
	if mac == k.MAC("a", []byte("bc")) {
		t.Error("different purposes and data give the same hash")
	}
	if k.MAC("1:a", nil) == k.MAC("1", []byte(":a")) || k.MAC("", []byte("0:")) == k.MAC("", nil) {
		t.Error("different purposes and data give the same hash")
	}
}

func TestSignerSigns(t *testing.T) {
	k := openKeys(t, filepath.Join(t.TempDir(), "root"))
	text := []byte("a checkpoint")
	public := k.Signer().Public().(ed25519.PublicKey)
	if !ed25519.Verify(public, text, ed25519.Sign(k.Signer(), text)) {
		t.Error("the signature does not verify")
	}
}
