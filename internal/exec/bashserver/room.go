package bashserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// The bounds of a work folder. One that is beyond them already may become smaller,
// and not larger.
const (
	maxWork      = 1 << 30
	maxWorkFiles = 200_000
	// lookEvery is how often a folder is looked at while a command runs; a large one
	// less often, so that looking never takes more than a tenth of the time.
	lookEvery = 250 * time.Millisecond
)

// errFull ends a command that fills its work folder.
var errFull = errors.New("the work folder is full")

// size is how much a folder holds.
type size struct{ bytes, files int64 }

func (s size) beyond(most size) bool { return s.bytes > most.bytes || s.files > most.files }

func (s size) String() string { return fmt.Sprintf("%d MiB or %d files", s.bytes>>20, s.files) }

// weigh adds up what is in a folder. What comes and goes meanwhile counts or does
// not, and links are not followed.
func weigh(dir string) (s size) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it has gone
		}
		s.files++
		if info, err := d.Info(); err == nil {
			s.bytes += taken(info)
		}
		return nil
	})
	return s
}

// room is how large the work folder may become.
func (o Options) room(dir string) size {
	most := size{maxWork, maxWorkFiles}
	if o.most != (size{}) {
		most = o.most
	}
	now := weigh(dir)
	return size{max(most.bytes, now.bytes), max(most.files, now.files)}
}

// watch ends a run when its work folder is full. What it returns stops looking, and
// tells whether the folder is.
func watch(ctx context.Context, dir string, most size) (run context.Context, full func() bool) {
	run, cancel := context.WithCancelCause(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		pause := lookEvery
		for {
			timer := time.NewTimer(pause)
			select {
			case <-run.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			start := time.Now()
			if weigh(dir).beyond(most) {
				cancel(errFull)
				return
			}
			pause = max(lookEvery, 9*time.Since(start))
		}
	}()
	return run, func() bool {
		cancel(nil)
		<-looked
		return errors.Is(context.Cause(run), errFull) || weigh(dir).beyond(most)
	}
}
