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
	// Name is the bundle's location, for messages.
	Name() string
	// List returns every file. Files that may not be read have a reason in Refused.
	List(ctx context.Context) ([]File, error)
	// Read reads a file that List returned.
	Read(ctx context.Context, path string) ([]byte, error)
}

// File is one file of a bundle.
type File struct {
	// Path is relative to the bundle, with slashes.
	Path string
	Size int64
	// Refused is why the file may not be read; empty if it may.
	Refused string
}

// ErrNoBundle means that a location contains no skills.
var ErrNoBundle = errors.New("there are no skills there")

// Bundle is the skills of an agent.
type Bundle struct {
	// Skills has the router first, then the order of the manifest.
	Skills   []*Document
	Warnings []Problem
	// Others counts the files that are not skills.
	Others int
}

// Skill returns the skill with an id, or nil.
func (b *Bundle) Skill(id string) *Document {
	for _, d := range b.Skills {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// Read reads the bundle that a manifest declares. tools are the names of the agent's
// tools, which a §TOOLS section may list. The error is an [*Invalid] if the bundle has
// problems, and otherwise the reason why it could not be read.
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

// inspect reads a bundle and returns every problem in the order of the files.
func inspect(ctx context.Context, files Files, declared *agent.Skills, tools []string) (*Bundle, []Problem, error) {
	listed, err := files.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{files: files, tools: tools}
	candidates := listed
	if declared.SourceKind == "" {
		candidates = among(listed, declared)
	}
	chosen := r.choose(candidates)
	found, err := r.readAll(ctx, chosen)
	if err != nil {
		return nil, nil, err
	}
	b := &Bundle{Others: len(listed) - len(chosen)}
	byID := r.unique(found)
	b.Skills = r.agree(declared, byID)
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return b, r.problems, nil
}

// among returns the files of a code bundle that the manifest lists as skills.
func among(files []File, declared *agent.Skills) []File {
	return slices.DeleteFunc(slices.Clone(files), func(f File) bool {
		id := idOf(f.Path)
		return formatOf(f.Path) == nil || !slices.ContainsFunc(declared.List, func(s agent.Skill) bool { return s.ID == id })
	})
}

// reader reads one bundle.
type reader struct {
	files    Files
	tools    []string
	problems []Problem
}

func (r *reader) tell(p Problem) {
	switch {
	case p.rule != nil:
	case p.Warning:
		p.rule = ruleDoubtful
	default:
		p.rule = ruleContent
	}
	r.problems = append(r.problems, p)
}

// choose returns the files that are skills, within limits.
func (r *reader) choose(listed []File) []File {
	var chosen []File
	var total int64
	ids := IDs(listed)
	for _, f := range listed {
		_, holds := ids[f.Path]
		switch {
		case f.Refused != "":
			r.tell(Problem{File: diag.Printable(f.Path), Message: f.Refused, Hint: "remove it: a bundle contains only its own files", rule: ruleFile})
		case !holds:
		case f.Size > maxDocument:
			r.tell(Problem{File: f.Path, Message: fmt.Sprintf("it has %d bytes; the limit is %d", f.Size, maxDocument), Hint: "shorten it", rule: ruleFile})
		default:
			if total += f.Size; total > maxTotal {
				r.tell(Problem{Message: fmt.Sprintf("its skills have more than %d bytes", maxTotal), Hint: "split it into several bundles", rule: ruleFile})
				return nil
			}
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// IDs returns the files of a bundle that are skills, with their ids. An Agent Skill at
// the top has no id but its name.
func IDs(files []File) map[string]string {
	folders := map[string]bool{}
	for _, f := range files {
		if dir, name := path.Split(f.Path); name == skillFile && dir != "" {
			folders[strings.TrimSuffix(dir, "/")] = true
		}
	}
	ids := map[string]string{}
	for _, f := range files {
		if formatOf(f.Path) != nil && (path.Base(f.Path) == skillFile || !within(folders, f.Path)) {
			ids[f.Path] = idOf(f.Path)
		}
	}
	return ids
}

// within reports whether a file is in one of some folders: all files beside an Agent
// Skill belong to it, whatever their names.
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

// readAll reads the files that are skills, in order.
func (r *reader) readAll(ctx context.Context, chosen []File) ([]*Document, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	texts := make([][]byte, len(chosen))
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(readers, len(chosen)) {
		wait.Go(func() {
			for i := range next {
				text, err := r.files.Read(ctx, chosen[i].Path)
				if err != nil {
					cancel(err)
					continue
				}
				texts[i] = text
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	wait.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	documents := make([]*Document, len(chosen))
	for i, f := range chosen {
		documents[i] = parse(f.Path, texts[i], r.tools, r.tell)
	}
	return documents, nil
}

// unique indexes skills by id.
func (r *reader) unique(found []*Document) map[string]*Document {
	byID := map[string]*Document{}
	for _, d := range found {
		if d.ID == "" {
			continue // its name was reported already
		}
		if other := byID[d.ID]; other != nil {
			r.tell(Problem{File: d.File, Message: "it has the same id as " + other.File + ": " + d.ID, Hint: "rename one of them", rule: ruleListed})
			continue
		}
		byID[d.ID] = d
	}
	return byID
}

// agree compares the skills with the manifest's list, both ways.
func (r *reader) agree(declared *agent.Skills, byID map[string]*Document) []*Document {
	var skills []*Document
	var spare []string
	for id := range byID {
		if !slices.ContainsFunc(declared.List, func(s agent.Skill) bool { return s.ID == id }) {
			spare = append(spare, id)
		}
	}
	slices.Sort(spare)
	for _, s := range declared.List {
		d := byID[s.ID]
		if d == nil {
			r.tell(Problem{Message: "the manifest lists the skill " + diag.Quote(s.ID) + ", but no file has that id", Hint: diag.DidYouMean(s.ID, spare), rule: ruleListed})
			continue
		}
		r.declaredAs(d, s)
		if skills = append(skills, d); s.ID == declared.Router {
			copy(skills[1:], skills)
			skills[0] = d
		}
	}
	for _, id := range spare {
		r.tell(Problem{File: byID[id].File, Message: "the manifest does not list the skill " + diag.Quote(id), Hint: "add it to skills, or remove the file", rule: ruleListed})
	}
	return skills
}

// declaredAs sets a skill's metadata to the manifest's, which people have reviewed.
// Differences in the file are warnings.
func (r *reader) declaredAs(d *Document, s agent.Skill) {
	other := func(what, declared, own string) {
		if declared != "" && own != "" && declared != own {
			r.tell(Problem{File: d.File, Message: "its " + what + " differs from the manifest's", Hint: "make them the same", Warning: true})
		}
	}
	other("name", s.Name, d.Name)
	other("description", s.Description, d.Description)
	d.Name = cmp.Or(s.Name, d.Name, d.ID)
	d.Description = cmp.Or(s.Description, d.Description)
	if len(s.Tags) > 0 {
		if len(d.Tags) > 0 && !slices.Equal(s.Tags, d.Tags) {
			other("list of tags", strings.Join(s.Tags, ", "), strings.Join(d.Tags, ", "))
		}
		d.Tags = s.Tags
	}
}
