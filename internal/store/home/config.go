package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// ReadTable reads one table of a settings file into a struct and reports whether the
// table exists. It checks the whole file: a misspelt setting, or a misspelt name of this
// very table, must not be ignored silently. Errors never quote a value.
func ReadTable(file, name string, into any) (found bool, err error) {
	whole, err := readConfig(file)
	if err != nil || whole[name] == nil {
		return false, err
	}
	table, err := toml.Marshal(whole[name])
	if err != nil {
		return false, fmt.Errorf("%s: [%s]: %w", file, name, err)
	}
	if err := toml.NewDecoder(strings.NewReader(string(table))).DisallowUnknownFields().Decode(into); err != nil {
		detail := "a setting is of the wrong type" // the decoder's message would quote the value
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
			detail = "there is no setting " + strings.Join(strict.Errors[0].Key(), ".")
		}
		return false, fmt.Errorf("%s: [%s]: %s", file, name, detail)
	}
	return true, nil
}

// CheckConfig reports every wrong name and type in a settings file. A missing file is
// valid.
func CheckConfig(file string) error {
	_, err := readConfig(file)
	return err
}

func readConfig(file string) (whole map[string]any, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := toml.Unmarshal(text, &whole); err != nil {
		at := file
		if where, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := where.Position()
			at = fmt.Sprintf("%s:%d:%d", file, line, column)
		}
		return nil, fmt.Errorf("%s: %s", at, strings.TrimPrefix(err.Error(), "toml: "))
	}
	return whole, check(file, text, whole)
}
