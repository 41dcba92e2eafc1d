package toolserver

import (
	"strings"
	"testing"
	"testing/iotest"
)

// Whatever a server writes to stderr is read to the end, told in lines of bounded
// length, and the last one is returned.
func FuzzDrain(f *testing.F) {
	f.Add("one\r\ntwo\n\n\nthree", uint16(0), true)
	f.Add("long\nlast", uint16(9000), false)
	f.Add("\n\r\n", uint16(1), false)
	f.Fuzz(func(t *testing.T, text string, more uint16, slowly bool) {
		text = strings.Replace(text, "long", strings.Repeat("x", int(more)), 1)
		from := strings.NewReader(text)
		var told []string
		log := func(line string) { told = append(told, line) }
		var last string
		if slowly && len(text) < 1<<10 {
			last = drain(iotest.OneByteReader(from), log)
		} else {
			last = drain(from, log)
		}
		if from.Len() > 0 {
			t.Errorf("%d bytes are not read", from.Len())
		}
		var want []string
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line[:min(len(line), maxLogLine)], "\r\n"); line != "" {
				want = append(want, line)
			}
		}
		if strings.Join(told, "\n") != strings.Join(want, "\n") || len(told) > 0 && told[len(told)-1] != last {
			t.Errorf("%.100q: told %.100q, the last %.100q, want %.100q", text, told, last, want)
		}
	})
}

// A log notification is told whatever is in it.
func FuzzLogMessage(f *testing.F) {
	for _, s := range []string{`{"level":"info","data":"text"}`, `{"level":"error","data":{"a":1}}`, `{"data":null}`, `[]`, `{"level":1}`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		said := logMessage(params)
		if said == "" && len(params) > 0 || len(said) > 3*len(params)+len(": null") {
			t.Errorf("%q is told as %q", params, said)
		}
	})
}
