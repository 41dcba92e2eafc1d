package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// ReadTable reads one table of a settings file into a struct, and reports whether
// it is there. Other tables are others' business, so only this one is read
// strictly: a setting that is misspelt must not be silently absent. An error
// never quotes a value.
func ReadTable(file, name string, into any) (found bool, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var whole map[string]any
	if err := toml.Unmarshal(text, &whole); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	if whole[name] == nil {
		return false, nil
	}
	table, err := toml.Marshal(whole[name])
	if err != nil {
		return false, fmt.Errorf("%s: [%s]: %w", file, name, err)
	}
	if err := toml.NewDecoder(strings.NewReader(string(table))).DisallowUnknownFields().Decode(into); err != nil {
		detail := "a setting is of the wrong type" // the decoder's words would quote it
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
			detail = "there is no setting " + strings.Join(strict.Errors[0].Key(), ".")
		}
		return false, fmt.Errorf("%s: [%s]: %s", file, name, detail)
	}
	return true, nil
}
