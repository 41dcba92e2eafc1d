package cli_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ambit-run/ambit/internal/cli"
)

// terminalPair opens a pseudo-terminal. It returns the ends that the person and the program use.
func terminalPair(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

func echoes(t *testing.T, f *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// TestSecretIsAskedHidden waits until the terminal has turned echo off, and then types a value. The terminal must not
// show the value.
func TestSecretIsAskedHidden(t *testing.T) {
	const canary = "canary-3e9d51"
	t.Setenv("AMBIT_HOME", t.TempDir())
	person, program := terminalPair(t)
	var out, errOut bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(t.Context(), []string{"secret", "set", "unknown", "token"}, program, &out, &errOut)
	}()
	for deadline := time.Now().Add(30 * time.Second); echoes(t, program); {
		if time.Now().After(deadline) {
			t.Fatal("the terminal still echoes input")
		}
		time.Sleep(time.Millisecond) // a poll: there is no event to wait for
	}
	if _, err := person.WriteString(canary + "\n"); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != 0 {
		t.Fatalf("exit %d: %s", code, errOut.String())
	}
	if !echoes(t, program) {
		t.Error("after the answer, the terminal does not echo input")
	}
	// Write a mark to the terminal. When the mark arrives, all earlier output has arrived too.
	if _, err := program.WriteString("\nmark"); err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for buf := make([]byte, 4096); !bytes.Contains(shown, []byte("mark")); {
		n, err := person.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, buf[:n]...)
	}
	if all := string(shown) + out.String() + errOut.String(); strings.Contains(all, canary) || !strings.Contains(all, "stored: token of unknown") {
		t.Errorf("the output contains the value, or no confirmation: %q", all)
	}
	var list bytes.Buffer
	if code := cli.Run(t.Context(), []string{"secret", "list"}, strings.NewReader(""), &list, &errOut); code != 0 || !strings.Contains(list.String(), "token") {
		t.Errorf("ambit secret list exits with %d, want 0 and the name of the secret: %s", code, list.String())
	}
}
