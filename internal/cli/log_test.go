package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A warning that repeats is logged once a minute. Other messages are all logged.
func TestRepeatedWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, err := newLog("text", &out)
		if err != nil {
			t.Fatal(err)
		}
		lines := func() []string {
			var texts []string
			for line := range strings.Lines(out.String()) {
				_, text, _ := strings.Cut(line, " ") // without the time
				texts = append(texts, strings.TrimSpace(text))
			}
			out.Reset()
			return texts
		}
		for range 3 {
			log.Info("tick")
			log.Warn("down")
			log.Warn("down", "agent", "a")
		}
		want := "level=INFO msg=tick|level=WARN msg=down|level=WARN msg=down agent=a|level=INFO msg=tick|level=INFO msg=tick"
		if got := strings.Join(lines(), "|"); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		time.Sleep(repeatInterval)
		log.Warn("down")
		log.Warn("down")
		time.Sleep(repeatInterval)
		log.Warn("down")
		time.Sleep(repeatInterval)
		log.Warn("down")
		want = "level=WARN msg=down repeated=2|level=WARN msg=down repeated=1|level=WARN msg=down"
		if got := strings.Join(lines(), "|"); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		// Callers can cause many different warnings, but not use much memory.
		h := log.Handler().(*seldom)
		for i := range 3 * maxRepeats {
			log.Warn("rejected", "number", i)
		}
		if n := len(h.seen); n > maxRepeats {
			t.Errorf("%d warnings are in memory, want at most %d", n, maxRepeats)
		}
	})
}
