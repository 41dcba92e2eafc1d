package console

import "testing"

func TestElapsed(t *testing.T) {
	for us, want := range map[int64]string{
		0: "<0.1 ms", 99: "<0.1 ms", 100: "0.1 ms", 9_940: "9.9 ms", 12_345: "12 ms", 999_400: "999 ms",
		1_234_000: "1.2 s", 59_900_000: "59.9 s", 125_400_000: "2m5s",
	} {
		if got := elapsed(us); got != want {
			t.Errorf("elapsed(%d) = %q, want %q", us, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int]string{0: "0 calls", 1: "1 call", 999: "999 calls", 1000: "1,000 calls", 1234567: "1,234,567 calls"} {
		if got := counted(n, "call"); got != want {
			t.Errorf("counted(%d) = %q, want %q", n, got, want)
		}
	}
}
