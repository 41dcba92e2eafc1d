package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/ambit-run/ambit/agent"
	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// Files gives access to the files of a bundle.
type Files interface {
	// Name returns the location of the bundle, for messages.
	Name() string
	// List returns every file. For a file that must not be read, File.Refused contains the reason.
	List(ctx context.Context) ([]File, error)
	// Read reads a file that List returned.
	Read(ctx context.Context, path string) ([]byte, error)
}

// File is one file of a bundle.
type File struct {
	// Path is the path of the file in the bundle, with slashes.
	Path string
	Size int64
	// Refused is the reason why the file must not be read. It is empty if the file can be read.
	Refused string
}

// ErrNoBundle means that a location contains no skills.
var ErrNoBundle = errors.New("no skills were found")

// Bundle contains the skills of an agent.
type Bundle struct {
	// Skills contains the router skill first, and then the other skills in the order of the manifest.
	Skills   []*Document
	Warnings []Problem
	// Others is the number of files that are not skills, and of skills that the manifest does not list.
	Others int
}

// Skill returns the skill with the given id, or nil.
func (b *Bundle) Skill(id string) *Document {
	for _, d := range b.Skills {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// Read reads the bundle that a manifest declares. In a §TOOLS section, it accepts tool URIs and the given tool names.
// If the bundle has problems, the error is an [*Invalid]. Any other error means that the bundle could not be read.
func Read(ctx context.Context, files Files, declared *agent.Skills, tools []string) (*Bundle, error) {
	b, all, err := inspect(ctx, files, declared, tools)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	for _, p := range all {
		if p.Warning {
			b.Warnings = append(b.Warnings, p)
		} else {
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		return nil, &Invalid{Where: files.Name(), Problems: problems}
	}
	return b, nil
}

// inspect reads a bundle and returns every problem, sorted by file and line.
func inspect(ctx context.Context, files Files, declared *agent.Skills, tools []string) (*Bundle, []Problem, error) {
	listed, err := files.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{files: files, tools: tools, ids: IDs(listed)}
	chosen := r.choose(listed, declared)
	found, err := r.readAll(ctx, chosen)
	if err != nil {
		return nil, nil, err
	}
	b := &Bundle{Others: len(listed) - len(chosen)}
	byID := r.unique(found)
	b.Skills = r.matchManifest(declared, byID)
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return b, r.problems, nil
}

// reader reads one bundle and collects its problems.
type reader struct {
	files    Files
	tools    []string
	ids      map[string]string // the ids of the skills, by file
	spare    []string          // the ids of the skills that the manifest does not list
	problems []Problem
}

// add adds a problem. If the problem has no rule, add chooses one.
func (r *reader) add(p Problem) {
	switch {
	case p.rule != nil:
	case p.Warning:
		p.rule = ruleDoubtful
	default:
		p.rule = ruleContent
	}
	r.problems = append(r.problems, p)
}

func (r *reader) refuse(rule *diag.Rule, file, message, hint string) {
	r.add(Problem{File: file, Message: message, Hint: hint, rule: rule})
}

// unlisted reports a skill that is not served, because the manifest does not list it.
func (r *reader) unlisted(file, id string) {
	r.spare = append(r.spare, id)
	r.add(Problem{
		File: file, Message: "the manifest does not list the skill " + diag.Quote(id),
		Hint: "to serve the skill, add it to \"skills\" in the manifest", Warning: true, rule: ruleUnlisted,
	})
}

// choose returns the files of the skills that the manifest lists. It reports a problem for each file that is too large
// or must not be read. In a code bundle, other files are ignored.
func (r *reader) choose(files []File, declared *agent.Skills) []File {
	var chosen []File
	var total int64
	for _, f := range files {
		id, holds := r.ids[f.Path]
		listed := id == "" || slices.ContainsFunc(declared.List, func(s agent.Skill) bool { return s.ID == id })
		switch {
		case declared.SourceKind == "" && (!holds || !listed):
		case f.Refused != "":
			r.refuse(ruleFile, diag.Printable(f.Path), f.Refused,
				"remove the file: a bundle can contain only regular files, folders, and links to targets in the bundle")
		case !holds:
		case !listed:
			r.unlisted(f.Path, id)
		case f.Size > maxDocument:
			r.refuse(ruleFile, f.Path, fmt.Sprintf("the file has %d bytes; the limit is %d", f.Size, maxDocument),
				"shorten the file")
		default:
			if total += f.Size; total > maxTotal {
				message := fmt.Sprintf("the skills exceed %d bytes in total", maxTotal)
				r.refuse(ruleFile, "", message, "split the bundle into several bundles")
				return nil
			}
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// IDs maps the path of each skill to the id of the skill. Skills that would have the same id get ids from their whole
// paths. An Agent Skill at the top of the bundle has an empty id, because only the front matter contains its name.
func IDs(files []File) map[string]string {
	folders := map[string]bool{}
	for _, f := range files {
		if dir, name := path.Split(f.Path); name == skillFile && dir != "" {
			folders[strings.TrimSuffix(dir, "/")] = true
		}
	}
	ids, uses := map[string]string{}, map[string]int{}
	for _, f := range files {
		if formatOf(f.Path) != nil && (path.Base(f.Path) == skillFile || !within(folders, f.Path)) {
			ids[f.Path] = idOf(f.Path)
			uses[ids[f.Path]]++
		}
	}
	for file, id := range ids {
		if uses[id] > 1 {
			ids[file] = agent.Slug(strings.TrimSuffix(strings.TrimSuffix(file, skillFile), path.Ext(file)))
		}
	}
	return ids
}

// within reports whether a file is in one of the folders, at any depth. IDs calls it with the folders of Agent Skills.
// A file in such a folder belongs to the Agent Skill, even if its name matches another format, such as a Cursor rule.
func within(folders map[string]bool, file string) bool {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if folders[dir] {
			return true
		}
	}
	return false
}

// readers is the number of files that are read concurrently.
const readers = 8

// readAll reads and parses the chosen files. The results are in the same order as the files.
func (r *reader) readAll(ctx context.Context, chosen []File) ([]*Document, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	texts := make([][]byte, len(chosen))
	slots := make(chan struct{}, readers)
	var wait sync.WaitGroup
	for i, f := range chosen {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			text, err := r.files.Read(ctx, f.Path)
			if err != nil {
				cancel(err)
			}
			texts[i] = text
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	documents := make([]*Document, len(chosen))
	for i, f := range chosen {
		documents[i] = parse(f.Path, r.ids[f.Path], texts[i], r.tools, r.add)
	}
	return documents, nil
}

// unique returns a map from ids to skills. It reports a problem if two skills have the same id.
func (r *reader) unique(found []*Document) map[string]*Document {
	byID := map[string]*Document{}
	for _, d := range found {
		if d.ID == "" {
			continue // the missing or invalid name was already reported
		}
		if other := byID[d.ID]; other != nil {
			r.refuse(ruleListed, d.File, "this skill and "+other.File+" have the same id: "+d.ID, "rename one of the two skills")
			continue
		}
		byID[d.ID] = d
	}
	return byID
}

// matchManifest compares the skills in the bundle with the list in the manifest. It reports skills that appear only in
// the bundle or only in the manifest. It returns the skills in the order that Bundle.Skills requires.
func (r *reader) matchManifest(declared *agent.Skills, byID map[string]*Document) []*Document {
	var skills []*Document
	for id, d := range byID { // the id of a skill at the top of the bundle is known only now
		if !slices.ContainsFunc(declared.List, func(s agent.Skill) bool { return s.ID == id }) {
			r.unlisted(d.File, id)
		}
	}
	slices.Sort(r.spare)
	for _, s := range declared.List {
		d := byID[s.ID]
		if d == nil {
			message := "the manifest lists the skill " + diag.Quote(s.ID) + ", but no file has that id"
			r.refuse(ruleListed, "", message, diag.DidYouMean(s.ID, r.spare))
			continue
		}
		r.applyDeclared(d, s)
		if skills = append(skills, d); s.ID == declared.Router {
			copy(skills[1:], skills)
			skills[0] = d
		}
	}
	return skills
}

// applyDeclared replaces a skill's metadata with the metadata in the manifest, because the manifest is what people
// reviewed. Differences are reported as warnings.
func (r *reader) applyDeclared(d *Document, s agent.Skill) {
	compare := func(what, declared, own string) {
		if declared != "" && own != "" && declared != own {
			r.add(Problem{
				File: d.File, Message: "the " + what + " differs from the " + what + " in the manifest",
				Hint: "use the same " + what + " in the file and in the manifest", Warning: true,
			})
		}
	}
	compare("name", s.Name, d.Name)
	compare("description", s.Description, d.Description)
	d.Name = cmp.Or(s.Name, d.Name, d.ID)
	d.Description = cmp.Or(s.Description, d.Description)
	if len(s.Tags) > 0 {
		if len(d.Tags) > 0 && !slices.Equal(s.Tags, d.Tags) {
			compare("list of tags", strings.Join(s.Tags, ", "), strings.Join(d.Tags, ", "))
		}
		d.Tags = s.Tags
	}
}
