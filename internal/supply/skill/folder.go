package skill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Folder is a bundle in a folder. It opens no file outside of the folder.
type Folder struct {
	name string
	root *os.Root
}

var _ Files = (*Folder)(nil)

// OpenFolder opens the folder key, a path with slashes, within another. The caller
// closes it.
func OpenFolder(within, key string) (*Folder, error) {
	name := filepath.Join(within, filepath.FromSlash(key))
	top, err := os.OpenRoot(within)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	root, err := top.OpenRoot(filepath.FromSlash(key))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: no folder %s", ErrNoBundle, name)
		}
		return nil, fmt.Errorf("%w: %w", ErrNoBundle, err)
	}
	return &Folder{name: name, root: root}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// Name is the folder's path.
func (f *Folder) Name() string { return f.name }

// ignored are folders with very many files and no skills.
var ignored = map[string]bool{".git": true, "node_modules": true}

// List walks the folder. It does not follow links to folders: a target within the
// bundle is listed at its own path.
func (f *Folder) List(ctx context.Context) ([]File, error) {
	var files []File
	err := fs.WalkDir(f.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case e.IsDir() && ignored[path.Base(name)]:
			return fs.SkipDir
		case e.IsDir():
			return nil
		case len(files) == maxFiles:
			return fmt.Errorf("%s holds more than %d files", f.name, maxFiles)
		}
		if file, ok := f.file(name, e); ok {
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// file describes one file. It returns false for a link to a folder in the bundle.
func (f *Folder) file(name string, e fs.DirEntry) (File, bool) {
	// Stat follows links, but not out of the root.
	info, err := f.root.Stat(filepath.FromSlash(name))
	switch {
	case err != nil && e.Type()&fs.ModeSymlink != 0:
		return File{Path: name, Refused: "it is a link that leaves the bundle or is broken"}, true
	case err != nil:
		return File{Path: name, Refused: "it cannot be accessed"}, true
	case info.IsDir():
		return File{}, false
	case !info.Mode().IsRegular():
		return File{Path: name, Refused: "it is neither a file nor a folder"}, true
	}
	return File{Path: name, Size: info.Size()}, true
}

// Read reads a file of the folder.
func (f *Folder) Read(_ context.Context, name string) ([]byte, error) {
	file, err := f.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file, name)
}

// readBounded reads a file that may have grown since it was listed.
func readBounded(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxDocument)
	}
	return text, nil
}
