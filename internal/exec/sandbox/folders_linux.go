//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ambit-run/ambit/internal/exec/sandbox/shim"
	"github.com/ambit-run/ambit/internal/exec/sandbox/supervisor"
)

// private returns the folders to which only the program can write, as paths in the sandbox.
func (s *shape) private() []string {
	folders := []string{scratch, "/tmp"}
	for _, m := range s.mounts {
		folders = slices.DeleteFunc(folders, func(f string) bool { return Inside(f, m.To) }) // the mount m hides the folder
		if m.Write && m.Give {
			folders = append(folders, filepath.Clean(m.To))
		}
	}
	return folders
}

// replaceable returns the files that the program can write and replace: those in a private folder of the program. The
// keys are paths in the sandbox.
func (r *running) replaceable() map[string]supervisor.File {
	files := map[string]supervisor.File{}
	for _, m := range r.shape.mounts {
		if info, err := os.Lstat(m.Source); !m.Write || m.Hide || err != nil || !info.Mode().IsRegular() {
			continue
		}
		to := filepath.Clean(m.To)
		folder := slices.IndexFunc(r.shape.mounts, func(p Mount) bool { return p.Give && p.To == filepath.Dir(to) })
		mounted := slices.IndexFunc(r.expected, func(e shim.Mounted) bool { return e.To == to })
		if folder >= 0 && mounted >= 0 && r.shape.tier == Confined {
			files[to] = supervisor.File{
				Path: m.Source, Device: r.expected[mounted].Device, Inode: r.expected[mounted].Inode,
				Folder: r.shape.mounts[folder].Source,
			}
		}
	}
	return files
}

// watchQuotas measures the private folders every quotaTime. After a slow measurement, the pause is longer: quotaShare
// times the duration of the measurement, but at most maxPause.
const (
	quotaTime  = 10 * time.Second
	quotaShare = 1000
	maxPause   = time.Minute
)

// watchQuotas ends the run when a private folder exceeds its limit.
func (r *running) watchQuotas(every time.Duration) {
	folders := r.shape.quotas()
	if len(folders) == 0 {
		return
	}
	for pause := every; ; {
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(pause):
		}
		begun := time.Now()
		for _, folder := range folders {
			// Without the lock, the program could hide a file by moving it to a folder that was already measured.
			r.moving.Lock()
			size, err := folderSize(folder)
			r.moving.Unlock()
			if err == nil && size > r.shape.disk {
				r.tooLarge("disk")
			}
		}
		pause = min(max(every, quotaShare*time.Since(begun)), maxPause)
	}
}

// A private folder that exceeds one of these limits is treated as too large. Without the limits, a program could make
// the measurement use any amount of memory.
const (
	maxFiles  = 1 << 20
	maxLevels = 100
)

var errUnmeasured = errors.New("the folder is too deep, has too many files, or cannot be read")

// folderSize returns the number of bytes that a folder occupies on its disk. It follows no links. If the folder
// cannot be measured, it returns math.MaxInt64. An error means that ambit has too many open files.
func folderSize(dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var sum measure
	if err == nil {
		err = sum.add(root, 0)
	}
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return 0, err
	case err != nil:
		return math.MaxInt64, nil
	}
	return sum.bytes, nil
}

// measure is the total size of the files in a folder, and their number.
type measure struct{ bytes, files int64 }

// add adds the files of a folder and closes the folder.
func (m *measure) add(root *os.Root, level int) error {
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(1024)
		for _, e := range entries {
			info, err := root.Lstat(e.Name())
			if err != nil {
				continue // the file was deleted during the measurement
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				m.bytes += st.Blocks*512 + 512
			}
			if m.files++; m.files > maxFiles || level > maxLevels {
				return errUnmeasured
			}
			if !info.IsDir() {
				continue
			}
			below, err := root.OpenRoot(e.Name())
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = m.add(below, level+1)
			}
			if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
