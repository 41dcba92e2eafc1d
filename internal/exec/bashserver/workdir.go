package bashserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// The limits of a work folder. A folder that already exceeds them may only shrink.
const (
	maxWork      = 1 << 30
	maxWorkFiles = 200_000
	// checkInterval is the pause between two measurements while a command runs. Large folders are measured
	// less often, so that measuring takes at most a tenth of the time.
	checkInterval = 250 * time.Millisecond
)

// errFull ends a command that fills its work folder.
var errFull = errors.New("the work folder is full")

// size is the size of a folder.
type size struct{ bytes, files int64 }

func (s size) exceeds(most size) bool { return s.bytes > most.bytes || s.files > most.files }

func (s size) String() string { return fmt.Sprintf("%d MiB or %d files", s.bytes>>20, s.files) }

// measure adds up the files of a folder without following links. Files that change meanwhile may or may not
// count.
func measure(dir string) (s size) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // deleted meanwhile
		}
		s.files++
		if info, err := d.Info(); err == nil {
			s.bytes += diskUsage(info)
		}
		return nil
	})
	return s
}

// limit returns the limit of the work folder for this run.
func (o Options) limit(dir string) size {
	most := cmp.Or(o.maxWork, size{maxWork, maxWorkFiles})
	now := measure(dir)
	return size{max(most.bytes, now.bytes), max(most.files, now.files)}
}

// watch ends a run when its work folder is full. The returned function stops watching and reports whether
// the folder is full.
func watch(ctx context.Context, dir string, most size) (run context.Context, full func() bool) {
	run, cancel := context.WithCancelCause(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		pause := checkInterval
		for {
			timer := time.NewTimer(pause)
			select {
			case <-run.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			start := time.Now()
			if measure(dir).exceeds(most) {
				cancel(errFull)
				return
			}
			pause = max(checkInterval, 9*time.Since(start))
		}
	}()
	return run, func() bool {
		cancel(nil)
		<-looked
		return errors.Is(context.Cause(run), errFull) || measure(dir).exceeds(most)
	}
}
