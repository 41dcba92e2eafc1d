package unzip

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pack makes an archive of so many entries.
func pack(tb testing.TB, entries int, comment string) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range entries {
		w, err := z.Create(fmt.Sprintf("folder/file-%d", i))
		if err == nil {
			_, err = io.WriteString(w, "text")
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(z.SetComment(comment), z.Close()); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// swollen is an archive that is all directory, and whose end says whatever it says
// of it.
func swollen(records int, says, size, offset uint64) []byte {
	entry := make([]byte, 46)
	copy(entry, "PK\x01\x02")
	all := bytes.Repeat(entry, records)
	end := append([]byte("PK\x05\x06"), 0, 0, 0, 0)
	end = binary.LittleEndian.AppendUint16(end, uint16(says))
	end = binary.LittleEndian.AppendUint16(end, uint16(says))
	end = binary.LittleEndian.AppendUint32(end, uint32(size))
	end = binary.LittleEndian.AppendUint32(end, uint32(offset))
	return append(append(all, end...), 0, 0)
}

// swollen64 says it in the larger form.
func swollen64(records int) []byte {
	all := swollen(records, 0xffff, 0xffffffff, 0xffffffff)
	dir, end := all[:46*records], bytes.Clone(all[46*records:])
	large := binary.LittleEndian.AppendUint64([]byte("PK\x06\x06"), 44)
	large = append(large, make([]byte, 12)...)
	for _, n := range []int{records, records, 46 * records, 0} {
		large = binary.LittleEndian.AppendUint64(large, uint64(n))
	}
	large = append(large, "PK\x06\x07\x00\x00\x00\x00"...)
	large = binary.LittleEndian.AppendUint64(large, uint64(len(dir)))
	large = binary.LittleEndian.AppendUint32(large, 1)
	return bytes.Join([][]byte{dir, large, end}, nil)
}

func open(data []byte, entries int) (*zip.Reader, error) {
	return NewReader(bytes.NewReader(data), int64(len(data)), entries)
}

// An archive of as many entries as it may have is read like any other, with its
// comment, and behind something else.
func TestOrdinary(t *testing.T) {
	for name, data := range map[string][]byte{
		"none": pack(t, 0, ""), "some": pack(t, 100, ""), "a long comment": pack(t, 100, strings.Repeat("c", 65535)),
		"behind a program": append(bytes.Repeat([]byte("#!"), 100_000), pack(t, 100, "c")...),
	} {
		z, err := open(data, 100)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(r); string(text) != "text" || err != nil {
				t.Errorf("%s: %s is %q, %v", name, f.Name, text, err)
			}
		}
	}
	// The file is large, but not its directory.
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "large"})
	if err == nil {
		_, err = w.Write(make([]byte, 1<<20))
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := open(b.Bytes(), 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.File[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, f); n != 1<<20 || err != nil {
		t.Errorf("%d bytes of it, %v", n, err)
	}
	if _, err := open([]byte("no archive"), 1); !errors.Is(err, zip.ErrFormat) {
		t.Errorf("no archive: %v", err)
	}
}

// However its end speaks of it: a directory that is too large is not read.
func TestSwollen(t *testing.T) {
	const n = 1 << 16 // which is 0 in 16 bits
	for name, data := range map[string][]byte{
		"honest": swollen(n, n, 46*n, 0), "few": swollen(n, 0, 46*n, 0), "small": swollen(n, 0, 46, 0), "elsewhere": swollen(n, 0, 0, 0), "in the larger form": swollen64(n),
	} {
		if z, err := zip.NewReader(bytes.NewReader(data), int64(len(data))); err != nil || len(z.File) != n {
			t.Fatalf("%s: archive/zip would not read it: %v", name, err)
		}
		from := &directory{from: bytes.NewReader(data), left: int64(len(data))}
		_, err := NewReader(from, int64(len(data)), 100)
		if read := int64(len(data)) - from.left; !errors.Is(err, ErrTooMany) || read > 2*tail {
			t.Errorf("%s: %v, after %d bytes", name, err, read)
		}
	}
}

// Whatever the bytes are: what is opened is what archive/zip opens, with a
// directory within the bound, and what is refused is beyond it.
func FuzzNewReader(f *testing.F) {
	f.Add(pack(f, 2, "comment"), uint16(5000))
	f.Add(swollen(40, 40, 46*40, 0), uint16(4000))
	f.Add(swollen(40, 40, 46, 0), uint16(1500))
	f.Add(swollen64(3), uint16(300))
	f.Fuzz(func(t *testing.T, data []byte, most uint16) {
		const plenty = 1 << 40
		all := &directory{from: bytes.NewReader(data), left: plenty}
		want, wantErr := zip.NewReader(all, int64(len(data)))
		got, err := newReader(bytes.NewReader(data), int64(len(data)), int64(most))
		if beyond := plenty-all.left > int64(most); beyond != errors.Is(err, ErrTooMany) {
			t.Fatalf("%d bytes are read of at most %d: %v", plenty-all.left, most, err)
		}
		if err != nil {
			if !errors.Is(err, ErrTooMany) && wantErr == nil {
				t.Fatalf("archive/zip opens it: %v", err)
			}
			return
		}
		size := 0
		for _, f := range got.File {
			size += 46 + len(f.Name) + len(f.Comment)
		}
		if wantErr != nil || len(got.File) != len(want.File) || size > int(most) {
			t.Fatalf("%d entries of %d bytes; archive/zip has %v", len(got.File), size, wantErr)
		}
	})
}

// TestOpenReader opens a file, and closes it if it is none.
func TestOpenReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.zip")
	if _, err := OpenReader(file, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, tt := range []struct {
		text []byte
		want error
	}{
		{pack(t, 3, ""), nil}, {[]byte("no archive"), zip.ErrFormat}, {swollen(10_000, 1, 46, 0), ErrTooMany},
	} {
		if err := os.WriteFile(file, tt.text, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := OpenReader(file, 10)
		if !errors.Is(err, tt.want) {
			t.Errorf("it ended with %v, want %v", err, tt.want)
		}
		if err == nil && (len(a.File) != 3 || a.Close() != nil) {
			t.Errorf("%d files", len(a.File))
		}
	}
}
