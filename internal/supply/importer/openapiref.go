package importer

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// maxFiles is the maximum number of files of a description.
const maxFiles = 1000

// documents holds the files that an OpenAPI description refers to. The description is untrusted, so it can refer only
// to files in its own folder and below.
type documents struct {
	folder string
	files  map[string]any // the content of each file, by its path relative to the folder
	size   int
	err    error // the first reference that cannot be followed
}

// bundleFirst is the hint for a description that must be combined into one file before the import.
const bundleFirst = "combine the description into one file first: npx @redocly/cli bundle FILE -o bundled.json; " +
	"then import bundled.json"

// file returns the content of a file that the description refers to.
func (d *documents) file(ref, name string) any {
	if v, ok := d.files[name]; ok {
		return v
	}
	v, err := d.read(ref, name)
	if err != nil && d.err == nil {
		d.err = err
	}
	d.files[name] = v
	return v
}

func (d *documents) read(ref, name string) (any, error) {
	if isRemote(name) {
		return nil, fail(bundleFirst, "the description refers to %s, but an import downloads nothing", clean(ref))
	}
	ext := strings.ToLower(path.Ext(name))
	if ext != ".json" && ext != ".yaml" && ext != ".yml" {
		return nil, fail(bundleFirst, "the description refers to %s, which is neither JSON nor YAML", clean(ref))
	}
	refuse := func(why string) (any, error) {
		return nil, fail("save the file next to the description, or "+bundleFirst,
			"the description refers to the file %s, %s", clean(name), why)
	}
	if len(d.files) == maxFiles {
		return refuse(fmt.Sprintf("but an import reads at most %d files", maxFiles))
	}
	folder, err := os.OpenRoot(d.folder)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	local := filepath.FromSlash(name)
	if info, err := folder.Stat(local); err != nil || !info.Mode().IsRegular() {
		return refuse("which is not a file in the folder of the description")
	}
	f, err := folder.Open(local)
	if err != nil {
		return refuse("which cannot be read")
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if d.size += len(content); err != nil || d.size > maxInput {
		return refuse("which is too large")
	}
	root, err := decode(ext, content)
	if err != nil {
		return refuse("which cannot be parsed")
	}
	rebase(root, name)
	return root, nil
}

func isRemote(name string) bool {
	return strings.Contains(name, "://") || strings.HasPrefix(name, "//")
}

// rebase makes the references in a file relative to the folder of the description.
func rebase(v any, file string) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			v["$ref"] = relativeTo(file, ref)
		}
		for _, item := range v {
			rebase(item, file)
		}
	case []any:
		for _, item := range v {
			rebase(item, file)
		}
	}
}

// relativeTo converts a reference in a file to the equivalent reference in the description.
func relativeTo(file, ref string) string {
	name, pointer, _ := strings.Cut(ref, "#")
	switch {
	case name == "":
		name = file
	case !isRemote(name):
		name = path.Join(path.Dir(file), name)
	}
	return name + "#" + pointer
}

// resolve follows references, starting at v, and returns the referenced object. It returns v itself if v is an object
// without a reference. It returns an empty object if v is not an object.
func (a *api) resolve(v any) map[string]any {
	for range 20 {
		o := object(v)
		ref := text(o["$ref"])
		if ref == "" {
			if o == nil {
				return map[string]any{}
			}
			return o
		}
		v = a.find(ref)
	}
	return map[string]any{}
}

// find returns the value that a reference names, or nil.
func (a *api) find(ref string) any {
	var at any = a.root
	name, pointer, _ := strings.Cut(ref, "#")
	if name != "" {
		if plain, err := url.PathUnescape(name); err == nil && !isRemote(name) {
			name = path.Clean(plain)
		}
		at = a.docs.file(ref, name)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" || pointer == "/" {
			break
		}
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		if items := list(at); items != nil {
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(items) {
				return nil
			}
			at = items[i]
			continue
		}
		at = object(at)[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}
