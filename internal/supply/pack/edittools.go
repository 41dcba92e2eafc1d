package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/ambit-run/ambit/internal/manifest/diag"
)

// NewTool is a tool to add to a manifest.
type NewTool struct {
	Name, Class string
	// Review means that the class is a guess, so the manifest lists the tool under "review".
	Review bool
}

// AddTools adds tools to a server of a Matrix manifest. It removes the tool whose name is in the parameter placeholder.
// The rest of the manifest stays unchanged, byte for byte.
func AddTools(manifest []byte, alias string, tools []NewTool, placeholder string) ([]byte, error) {
	return editServer(manifest, alias, func(server *hujson.Object) error {
		list, before, err := memberOf(server, "tools")
		if err != nil {
			return err
		}
		array, ok := list.Value.(*hujson.Array)
		if !ok {
			return fmt.Errorf("%s is not a list", diag.Quote("tools"))
		}
		array.Elements = slices.DeleteFunc(array.Elements, func(v hujson.Value) bool {
			name := v.Find("/name")
			return name != nil && name.Value.Kind() == '"' && name.Value.(hujson.Literal).String() == placeholder
		})
		var review []string
		for _, t := range tools {
			// Strings can always be encoded as JSON.
			name, _ := json.Marshal(t.Name)
			class, _ := json.Marshal(t.Class)
			entry, err := hujson.Parse(fmt.Appendf(nil, `{"name": %s, "side_effect_class": %s}`, name, class))
			if err != nil {
				return err
			}
			array.Elements = append(array.Elements, entry)
			if t.Review {
				review = append(review, t.Name)
			}
		}
		layOut(array, before)
		return addReview(server, before, review)
	})
}

// AllowEffects adds side-effect classes to the classes that a Matrix manifest allows.
func AllowEffects(manifest []byte, classes []string) ([]byte, error) {
	return edit(manifest, func(root *hujson.Object) error {
		list, _, err := memberOf(root, "allowed_side_effects")
		if err != nil {
			return err
		}
		array, ok := list.Value.(*hujson.Array)
		if !ok {
			return fmt.Errorf("%s is not a list", diag.Quote("allowed_side_effects"))
		}
		for _, class := range classes {
			has := func(v hujson.Value) bool { return v.Value.Kind() == '"' && v.Value.(hujson.Literal).String() == class }
			if !slices.ContainsFunc(array.Elements, has) {
				array.Elements = append(array.Elements, hujson.Value{Value: hujson.String(class)})
			}
		}
		layOut(array, nil)
		return nil
	})
}

// addReview adds names to the list x-ambit.review of a server.
func addReview(server *hujson.Object, before hujson.Extra, names []string) error {
	if len(names) == 0 {
		return nil
	}
	has := func(o *hujson.Object, key string) bool {
		_, _, err := memberOf(o, key)
		return err == nil
	}
	add := func(o *hujson.Object, key string, value hujson.ValueTrimmed, before hujson.Extra) {
		o.Members = append(o.Members, hujson.ObjectMember{
			Name:  hujson.Value{BeforeExtra: before, Value: hujson.String(key)},
			Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: value},
		})
	}
	if !has(server, "x-ambit") {
		last := &server.Members[len(server.Members)-1].Value
		last.AfterExtra, server.AfterExtra = nil, firstOf(last.AfterExtra, server.AfterExtra)
		add(server, "x-ambit", &hujson.Object{}, before)
	}
	extension, _, err := memberOf(server, "x-ambit")
	if err != nil {
		return err
	}
	object, ok := extension.Value.(*hujson.Object)
	if !ok {
		return fmt.Errorf("%s is not an object", diag.Quote("x-ambit"))
	}
	if !has(object, "review") {
		var space hujson.Extra
		if len(object.Members) > 0 {
			space = firstOf(object.Members[0].Name.BeforeExtra, hujson.Extra(" "))
		}
		add(object, "review", &hujson.Array{}, space)
	}
	list, _, err := memberOf(object, "review")
	if err != nil {
		return err
	}
	array, ok := list.Value.(*hujson.Array)
	if !ok {
		return fmt.Errorf("%s is not a list", diag.Quote("review"))
	}
	for _, name := range names {
		array.Elements = append(array.Elements, hujson.Value{Value: hujson.String(name)})
	}
	layOut(array, nil)
	return nil
}

// layOut gives new elements of a list the same spacing as the first element, such as one line per element. If there is
// no space before the first element, but the key of the list begins a line, layOut puts each element on its own line.
func layOut(array *hujson.Array, before hujson.Extra) {
	if len(array.Elements) == 0 {
		return
	}
	space := array.Elements[0].BeforeExtra
	if len(space) == 0 && bytes.HasPrefix(before, []byte("\n")) {
		unit := "  "
		if bytes.Contains(before, []byte("\t")) {
			unit = "\t"
		}
		space = append(slices.Clone(before), unit...)
		if len(bytes.TrimSpace(array.AfterExtra)) == 0 {
			array.AfterExtra = before
		}
	}
	for i := range array.Elements {
		if e := &array.Elements[i]; len(e.BeforeExtra) == 0 && (i > 0 || bytes.Contains(space, []byte("\n"))) {
			if e.BeforeExtra = space; len(space) == 0 {
				e.BeforeExtra = hujson.Extra(" ")
			}
		}
	}
}

// firstOf returns the first text in the list that is not empty.
func firstOf(list ...hujson.Extra) hujson.Extra {
	for _, e := range list {
		if len(e) > 0 {
			return e
		}
	}
	return nil
}

// memberOf returns a member of an object, and the text between the previous member and the key.
func memberOf(o *hujson.Object, key string) (value *hujson.Value, before hujson.Extra, err error) {
	for i := range o.Members {
		m := &o.Members[i]
		if name, ok := m.Name.Value.(hujson.Literal); ok && name.String() == key {
			return &m.Value, m.Name.BeforeExtra, nil
		}
	}
	return nil, nil, fmt.Errorf("%s is missing", diag.Quote(key))
}

// edit changes the text of a Matrix manifest.
func edit(manifest []byte, change func(root *hujson.Object) error) ([]byte, error) {
	body := bytes.TrimPrefix(manifest, []byte("\uFEFF"))
	var limited any
	err := json.Unmarshal(body, &limited) // Unmarshal limits the nesting depth
	var root hujson.Value
	if err == nil {
		root, err = hujson.Parse(body)
	}
	if err == nil {
		object, ok := root.Value.(*hujson.Object)
		if !ok {
			return nil, fail(ManifestUnfit, "", "the manifest is not an object", "", nil)
		}
		err = change(object)
	}
	if err != nil {
		return nil, fail(ManifestUnfit, "", strings.TrimPrefix(err.Error(), "hujson: "), "to list the problems, run: ambit validate", nil)
	}
	return slices.Concat(manifest[:len(manifest)-len(body)], root.Pack()), nil
}

// editServer changes the entry of a server in the text of a Matrix manifest.
func editServer(manifest []byte, alias string, change func(*hujson.Object) error) ([]byte, error) {
	return edit(manifest, func(root *hujson.Object) error {
		servers, _, err := memberOf(root, "servers")
		if err != nil {
			return err
		}
		list, _ := servers.Value.(*hujson.Array)
		for i := 0; list != nil && i < len(list.Elements); i++ {
			server, ok := list.Elements[i].Value.(*hujson.Object)
			if !ok {
				continue
			}
			name, _, err := memberOf(server, "alias")
			if err == nil && name.Value.Kind() == '"' && name.Value.(hujson.Literal).String() == alias {
				return change(server)
			}
		}
		return fmt.Errorf("no server has the alias %s", diag.Quote(alias))
	})
}
