package limit

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBytes(t *testing.T) {
	b := &Bytes{Each: 10, All: 15}
	body := func(who string, n int) *Body {
		return b.Body(who, io.NopCloser(strings.NewReader(strings.Repeat("x", n))))
	}
	read := func(body *Body, want string) {
		t.Helper()
		_, err := io.ReadAll(body)
		got := "done"
		if busy, ok := errors.AsType[*BusyError](err); ok {
			got = map[bool]string{false: "principal", true: "process"}[busy.All]
		} else if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("reading ended with %q, want %q", got, want)
		}
	}
	first, second, third := body("a", 8), body("a", 3), body("b", 8)
	read(first, "done")
	read(second, "principal")
	read(third, "process")
	second.Release()
	third.Release()
	read(body("b", 7), "done")
	first.Release()
	read(body("a", 8), "done")
	if release, err := b.Take("c", 1); err == nil {
		t.Error("bytes were taken beyond the limit of the process")
		release()
	}
}

// When all requests are answered, all counts are zero, and no principal is remembered.
func TestBytesAreReleased(t *testing.T) {
	b := NewBytes()
	b.Body("a", io.NopCloser(strings.NewReader("text"))).Release() // nothing was read
	for range 100 {
		body := b.Body("a", io.NopCloser(strings.NewReader("text")))
		if _, err := io.ReadAll(body); err != nil {
			t.Fatal(err)
		}
		release, err := b.Take("b", 5)
		if err != nil {
			t.Fatal(err)
		}
		release()
		body.Release()
	}
	if b.all != 0 || len(b.by) != 0 {
		t.Errorf("%d bytes of %v are counted", b.all, b.by)
	}
}
