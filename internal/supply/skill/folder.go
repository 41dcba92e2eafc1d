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

// Folder is a bundle in a folder. It opens no file outside the folder.
type Folder struct {
	name string
	root *os.Root
}

var _ Files = (*Folder)(nil)

// OpenFolder opens the folder at key, which is a slash-separated path relative to parent. The caller must close the
// result.
func OpenFolder(parent, key string) (*Folder, error) {
	name := filepath.Join(parent, filepath.FromSlash(key))
	top, err := os.OpenRoot(parent)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	root, err := top.OpenRoot(filepath.FromSlash(key))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: the folder %s does not exist", ErrNoBundle, name)
		}
		return nil, fmt.Errorf("%w: %w", ErrNoBundle, err)
	}
	return &Folder{name: name, root: root}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// Name returns the path of the folder.
func (f *Folder) Name() string { return f.name }

// ignored lists folders that contain very many files and no skills.
var ignored = map[string]bool{".git": true, "node_modules": true}

// List returns the files in the folder and its subfolders. It does not follow links to folders. If the target of such
// a link is in the bundle, the files in the target are listed under their real paths.
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
			return fmt.Errorf("%s contains more than %d files", f.name, maxFiles)
		}
		if file, ok := f.file(name, e); ok {
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// file returns the File for a path in the bundle. It returns false if the path is a link to a folder.
func (f *Folder) file(name string, e fs.DirEntry) (File, bool) {
	// Stat follows links, but fails if the target is outside the root.
	info, err := f.root.Stat(filepath.FromSlash(name))
	switch {
	case err != nil && e.Type()&fs.ModeSymlink != 0:
		return File{Path: name, Refused: "the link is broken or leads out of the bundle"}, true
	case err != nil:
		return File{Path: name, Refused: "the file cannot be accessed"}, true
	case info.IsDir():
		return File{}, false
	case !info.Mode().IsRegular():
		return File{Path: name, Refused: "the path is neither a file nor a folder"}, true
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

// readBounded reads a file of at most maxDocument bytes. It checks the size again, because the file could have grown
// since it was listed.
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
