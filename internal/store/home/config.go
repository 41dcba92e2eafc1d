package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// ReadTable decodes one table of a settings file into a struct. The first result reports whether the table exists.
// ReadTable checks the whole file and fails if any table or setting is unknown. Error messages never contain the value
// of a setting.
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
		detail := "a setting has the wrong type" // the decoder's own message would quote the value
		if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
			detail = "there is no setting " + strings.Join(strict.Errors[0].Key(), ".")
		}
		return false, fmt.Errorf("%s: [%s]: %s", file, name, detail)
	}
	return true, nil
}

// CheckConfig returns an error if a settings file contains unknown settings or values of the wrong type. The error
// lists them. A missing file is valid.
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

// maxDays is the number of days in a hundred years. A time.Duration overflows only after about three hundred years.
const maxDays = 36525

var errDuration = errors.New("the value is not a valid duration such as 90m, 12h or 7d")

// Duration parses a duration such as 90m, 12h or 7d. It fails if the duration is negative or longer than maxDays.
func Duration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > maxDays {
			return 0, errDuration
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxDays*24*time.Hour {
		return 0, errDuration
	}
	return d, nil
}
