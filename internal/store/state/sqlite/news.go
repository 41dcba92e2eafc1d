package sqlite

import (
	"errors"
	"io/fs"
	"os"
)

// maxNews is the size at which Open deletes the file of the announcements.
const maxNews = 1 << 20

// news returns the name of a file with one byte for each announcement. Its size costs far less than a query.
func (s *store) news() string { return s.file + ".news" }

func (s *store) Announce() error {
	f, err := os.OpenFile(s.news(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return explain(err)
	}
	_, err = f.Write([]byte{0})
	return explain(errors.Join(err, f.Close()))
}

func (s *store) Announced() (n int64, ok bool) {
	info, err := os.Stat(s.news())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, true
	case err != nil:
		return 0, false
	}
	return info.Size(), true
}

// shortenNews deletes a large file of announcements. Other processes then read their rows again.
func (s *store) shortenNews() error {
	if n, ok := s.Announced(); !ok || n < maxNews {
		return nil
	}
	if err := os.Remove(s.news()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
