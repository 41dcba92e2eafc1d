package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/ambit-run/ambit/internal/manifest/diag"
	"github.com/ambit-run/ambit/internal/serve/daemon"
	"github.com/ambit-run/ambit/internal/supply/pack"
)

// localFiles returns the files to copy: the manifest, the lock file, and the servers that are files. If the lock file
// pins a server's project, all files of the project are copied. The manifest's folder can also contain unrelated files,
// which are not copied.
func (in *installer) localFiles(base string) ([]string, error) {
	files := []string{base}
	lock, err := readLock(filepath.Dir(in.m.Path))
	if err != nil {
		return nil, err
	}
	if lock != nil {
		files = append(files, pack.LockName)
	}
	for _, s := range in.m.Agent().Servers {
		ref, err := pack.Identify(s)
		if err != nil || ref.Kind != pack.File || filepath.IsAbs(ref.Name) {
			continue
		}
		rel := filepath.Clean(ref.Name)
		if !filepath.IsLocal(rel) {
			return nil, no("move the server's file into the manifest's folder, or use its absolute path",
				"server %s is the file %s, which is outside the manifest's folder", s.Alias, diag.Quote(ref.Name))
		}
		if locked := lock.Server(in.m.Agent().ID, s.Alias); locked != nil && locked.Package.Folder != "" {
			project, err := in.projectFiles(s.Alias, ref)
			if err != nil {
				return nil, err
			}
			files = append(files, project...)
			continue
		}
		in.warn("server %s is a single file, so it is copied without the files that it imports", s.Alias)
		files = append(files, rel)
	}
	return files, nil
}

// projectFiles returns the files of a server's locked project, relative to the manifest's folder.
func (in *installer) projectFiles(alias string, ref pack.Ref) ([]string, error) {
	folder, err := filepath.Abs(filepath.Dir(in.m.Path))
	if err != nil {
		return nil, err
	}
	within, err := os.OpenRoot(folder) // an os.Root does not follow links out of the folder
	if err != nil {
		return nil, err
	}
	defer within.Close()
	relock := "ambit lock " + diag.ShellWord(in.m.Path)
	root, files, err := pack.Project(ref, in.m.Path)
	if err == nil && root == "" {
		err = errors.New("its folder no longer has a package.json or pyproject.toml")
	}
	if err != nil {
		return nil, no("restore the locked files, or lock the agent again: "+relock,
			"server %s cannot be copied: %w", alias, err)
	}
	for i := range files {
		if files[i], err = filepath.Rel(folder, filepath.Join(root, files[i])); err != nil {
			return nil, err
		}
		if info, err := within.Stat(files[i]); err != nil || !info.Mode().IsRegular() {
			return nil, no("move "+diag.Quote(files[i])+" out of the project, and lock the agent again: "+relock,
				"server %s cannot be copied: %s is a link to a folder, a link out of the manifest's folder, or not a regular file",
				alias, diag.Quote(files[i]))
		}
	}
	return files, nil
}

// checkNoOtherAgents returns an error if the copied folder contains other agents, because the user has not reviewed
// these agents.
func (in *installer) checkNoOtherAgents(staged, base string) error {
	found, err := daemon.FindAs(in.reading(), staged)
	if err != nil {
		return err
	}
	for _, f := range found {
		if other := filepath.Base(f.Path); other != base {
			return no("move the other agent to another folder", "the folder of %s contains another agent: %s", in.m.Path, other)
		}
		if f.Problem != nil {
			return no("", "the copy cannot be served: %w", f.Problem)
		}
	}
	return nil
}
