package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// logFormats lists the values of --log-format.
var logFormats = []string{"text", "json"}

// logFlag adds --log-format to a verb that keeps running.
func logFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "log-format", logFormats[0], "the `format` of the log: text or json")
	complete(cmd, "log-format", logFormats)
}

// startLog makes this process log in a format of log/slog, with the time and the level of each message. Verbs that do
// not keep running print messages for people instead.
func (t *terminal) startLog(format string) error {
	var err error
	t.log, err = newLog(format, logWriter{func(line string) error {
		_ = t.flush() // earlier output must appear before the log; if flush fails, Run reports the error
		_, err := io.WriteString(t.err, line)
		return err
	}})
	return err
}

func newLog(format string, to io.Writer) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(&seldom{Handler: slog.NewTextHandler(to, nil)}), nil
	case "json":
		return slog.New(&seldom{Handler: slog.NewJSONHandler(to, nil)}), nil
	}
	return nil, usage("use text or json", "--log-format cannot be %q", format)
}

// seldom logs the same warning at most once in repeatInterval. Without this limit, an unavailable store, or callers
// whose requests keep failing for the same reason, would fill the log. The attribute "repeated" counts the warnings
// that were left out.
type seldom struct {
	slog.Handler
	mu   sync.Mutex
	seen map[string]*repeats
}

type repeats struct {
	logged  time.Time
	omitted int
}

// Callers can cause any number of different warnings, so at most maxRepeats of them are kept in memory.
const repeatInterval, maxRepeats = time.Minute, 1000

func (h *seldom) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		omitted, again := h.repeated(&r)
		if again {
			return nil
		}
		if omitted > 0 {
			r.AddAttrs(slog.Int("repeated", omitted))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// repeated reports whether the same warning was logged a short time ago. If not, it returns the number of warnings that
// were left out since the last one.
func (h *seldom) repeated(r *slog.Record) (omitted int, again bool) {
	key := r.Message
	r.Attrs(func(a slog.Attr) bool {
		key += "\x00" + a.String()
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.seen[key]
	if last != nil && r.Time.Sub(last.logged) < repeatInterval {
		last.omitted++
		return 0, true
	}
	if last == nil {
		if len(h.seen) >= maxRepeats || h.seen == nil {
			h.seen = map[string]*repeats{}
		}
		last = &repeats{}
		h.seen[key] = last
	}
	omitted = last.omitted
	*last = repeats{logged: r.Time}
	return omitted, false
}

// logWriter escapes the characters that could control a terminal. The handlers of log/slog escape only some of them.
type logWriter struct{ write func(line string) error }

func (w logWriter) Write(line []byte) (int, error) {
	if err := w.write(escapeJSON(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// logsElsewhere reports whether the log goes somewhere other than the terminal of the person who started this process.
func (t *terminal) logsElsewhere() bool {
	f, ok := t.err.(*os.File)
	return !ok || !term.IsTerminal(int(f.Fd()))
}

// logf logs an event.
func (t *terminal) logf(format string, args ...any) {
	t.event(slog.LevelInfo, fmt.Sprintf(format, args...))
}

// troublef logs a problem that does not stop the process.
func (t *terminal) troublef(format string, args ...any) {
	t.event(slog.LevelWarn, fmt.Sprintf(format, args...))
}

func (t *terminal) event(level slog.Level, message string) {
	if t.log != nil {
		t.log.Log(context.Background(), level, message)
		return
	}
	t.notef("%s %s", t.paint(dim, "ambit:"), diag.Printable(message))
}

// serverLog logs a line of a server's output, with the alias of the server. The line can also come from a part of
// ambit, such as the policy.
func (t *terminal) serverLog(source, line string) {
	if t.log != nil {
		logLine(t.log, line, "source", source)
		return
	}
	t.notef("%s %s", t.paint(dim, "["+diag.Printable(source)+"]"), diag.Printable(line))
}

// logLine logs a line of output. A line that begins with "warning: " is logged as a warning.
func logLine(log *slog.Logger, line string, attributes ...any) {
	if strings.TrimSpace(line) == "" {
		return // programs print empty lines between their messages, and an event needs a message
	}
	level := slog.LevelInfo
	if rest, ok := strings.CutPrefix(line, "warning: "); ok {
		level, line = slog.LevelWarn, rest
	}
	log.Log(context.Background(), level, line, attributes...)
}

// logServersTo opens the log for the output of tool servers. The first result writes a line, and the second result
// closes the log. If the file name is empty, the output goes to the log of the process.
func (t *terminal) logServersTo(name, format string) (func(agent, alias, line string), func(), error) {
	log, done := t.log, func() {}
	if name != "" {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, usage("choose a file that you can write to", "cannot open the log of the tool servers: %w", err)
		}
		// slog ignores errors, so a full disk does not stop the daemon.
		log, err = newLog(format, logWriter{func(line string) error { _, err := f.WriteString(line); return err }})
		if err != nil {
			return nil, nil, err
		}
		done = func() { _ = f.Close() }
	}
	return func(agent, alias, line string) { logLine(log, line, "agent", agent, "source", alias) }, done, nil
}
