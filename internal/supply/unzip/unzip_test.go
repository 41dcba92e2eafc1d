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

// pack returns an archive with the given number of entries.
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

// swollen returns an archive that consists only of a directory with the given number of records. The
// end record declares the number of entries, and the size and offset of the directory. All these
// values can be wrong.
func swollen(records int, declared, size, offset uint64) []byte {
	entry := make([]byte, 46)
	copy(entry, "PK\x01\x02")
	all := bytes.Repeat(entry, records)
	end := append([]byte("PK\x05\x06"), 0, 0, 0, 0)
	end = binary.LittleEndian.AppendUint16(end, uint16(declared))
	end = binary.LittleEndian.AppendUint16(end, uint16(declared))
	end = binary.LittleEndian.AppendUint32(end, uint32(size))
	end = binary.LittleEndian.AppendUint32(end, uint32(offset))
	return append(append(all, end...), 0, 0)
}

// swollen64 is like swollen, but has the end record of the zip64 format, with correct numbers.
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

// An archive with the maximum number of entries can be read, even with a long comment or with other
// data before the archive.
func TestOrdinary(t *testing.T) {
	for name, data := range map[string][]byte{
		"no entries": pack(t, 0, ""), "100 entries": pack(t, 100, ""), "a long comment": pack(t, 100, strings.Repeat("c", 65535)),
		"after a program": append(bytes.Repeat([]byte("#!"), 100_000), pack(t, 100, "c")...),
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
				t.Errorf("%s: the content of %s is %q, %v; want \"text\"", name, f.Name, text, err)
			}
		}
	}
	// The limit applies only to the directory: a large file in the archive can be read.
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
		t.Errorf("reading the large file: got %d bytes, %v; want %d bytes", n, err, 1<<20)
	}
	if _, err := open([]byte("no archive"), 1); !errors.Is(err, zip.ErrFormat) {
		t.Errorf("a file that is not an archive: got %v, want %v", err, zip.ErrFormat)
	}
}

// An oversized directory is not read, whatever the end record of the archive declares.
func TestSwollen(t *testing.T) {
	const n = 1 << 16 // the low 16 bits of this number are 0
	for name, data := range map[string][]byte{
		"correct": swollen(n, n, 46*n, 0), "no entries": swollen(n, 0, 46*n, 0), "a small size": swollen(n, 0, 46, 0), "no size": swollen(n, 0, 0, 0), "zip64": swollen64(n),
	} {
		if z, err := zip.NewReader(bytes.NewReader(data), int64(len(data))); err != nil || len(z.File) != n {
			t.Fatalf("%s: archive/zip does not read the archive, so the test is pointless: %v", name, err)
		}
		from := &directory{from: bytes.NewReader(data), left: int64(len(data))}
		_, err := NewReader(from, int64(len(data)), 100)
		if read := int64(len(data)) - from.left; !errors.Is(err, ErrTooMany) || read > 2*endSize {
			t.Errorf("%s: got %v after %d bytes, want %v", name, err, read, ErrTooMany)
		}
	}
}

// If the directory is within the limit, NewReader returns the same entries as archive/zip. It
// returns ErrTooMany only if the directory exceeds the limit.
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
			t.Fatalf("archive/zip reads %d bytes and the limit is %d, but the error is %v", plenty-all.left, most, err)
		}
		if err != nil {
			if !errors.Is(err, ErrTooMany) && wantErr == nil {
				t.Fatalf("archive/zip opens the archive, but newReader fails: %v", err)
			}
			return
		}
		size := 0
		for _, f := range got.File {
			size += 46 + len(f.Name) + len(f.Comment)
		}
		if wantErr != nil || len(got.File) != len(want.File) || size > int(most) {
			t.Fatalf("newReader returned %d entries of %d bytes with a limit of %d; archive/zip returned the error %v", len(got.File), size, most, wantErr)
		}
	})
}

// OpenReader opens an archive, and returns an error for any other file.
func TestOpenReader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.zip")
	if _, err := OpenReader(file, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
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
			t.Errorf("OpenReader returned the error %v, want %v", err, tt.want)
		}
		if err == nil && (len(a.File) != 3 || a.Close() != nil) {
			t.Errorf("the archive has %d files, want 3", len(a.File))
		}
	}
}

// Claim ends for a path that does not end at the folder of the archive.
func TestClaimAbsolutePath(t *testing.T) {
	if names := (Names{}); !names.Claim("/a/b") || names.Claim("/A/b") {
		t.Errorf("the claimed names are %v", names)
	}
}
