package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// bar is a progress line for downloads, locks and starts. It is redrawn in place and removed
// before any other output.
type bar struct {
	mu    sync.Mutex
	out   io.Writer
	width int
	paint func(style, string) string

	names []string          // in the order they came
	steps map[string]string // what each is at
	shown bool
}

// stages maps the first word of a step to its progress in percent. Downloads take longest.
var stages = map[string]int{
	"downloading": 5, "installing": 30, "running": 50, "hashing": 70, "connecting": 75, "starting": 75, "proving": 90, "ready": 100, "refused": 100,
}

const barWidth = 20

// step notes what one is at, and draws.
func (b *bar) step(name, step string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.steps == nil {
		b.steps = map[string]string{}
	}
	if !slices.Contains(b.names, name) {
		b.names = append(b.names, name)
	}
	b.steps[name] = step
	done, way := 0, 0
	for _, n := range b.names {
		first, _, _ := strings.Cut(b.steps[n], " ")
		way += stages[first]
		if stages[first] == 100 {
			done++
		}
	}
	b.take()
	if done == len(b.names) {
		b.names, b.steps = nil, nil // what comes next is another matter
		return
	}
	full := way * barWidth / (100 * len(b.names))
	text := fmt.Sprintf("%d of %s  %s: %s", done, count(len(b.names), "server"), diag.Printable(name), diag.Printable(step))
	fmt.Fprintf(b.out, "%s%s %s", b.paint(green, strings.Repeat("█", full)), b.paint(dim, strings.Repeat("░", barWidth-full)), clip(text, b.width-barWidth-2))
	b.shown = true
}

// hide takes the line away, because something else is written now.
func (b *bar) hide() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take()
}

func (b *bar) take() {
	if b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
		b.shown = false
	}
}
