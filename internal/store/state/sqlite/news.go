package sqlite

import (
	"errors"
	"os"

	"github.com/ambit-run/ambit/internal/store/state"
)

// news returns the name of a file with one byte for each announcement. Reading its size costs far less than a query.
func (s *store) news() string { return s.file + ".news" }

func (s *store) Announce() error {
	f, err := os.OpenFile(s.news(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return explain(err)
	}
	_, err = f.Write([]byte{0})
	return explain(errors.Join(err, f.Close()))
}

// Announced also uses the file's time, because someone can delete the file, and its size then starts at zero again.
func (s *store) Announced() (n state.News, ok bool) {
	info, err := os.Stat(s.news())
	if err != nil {
		return n, false
	}
	return state.News{Size: info.Size(), Time: info.ModTime().UnixNano()}, true
}
