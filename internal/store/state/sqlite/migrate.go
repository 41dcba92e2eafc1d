package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// migrate brings the store to the newest schema. A store that has it is only
// looked at: that is what nearly every start finds, and it takes no lock.
func (s *store) migrate(ctx context.Context, list []string) error {
	version, err := s.version()
	if err != nil {
		return err
	}
	if behind, err := migrations.Check(version, list); err != nil || !behind {
		return err
	}
	if err := s.enterFirst(ctx); err != nil {
		return err
	}
	return errors.Join(s.upgrade(ctx, list), unlock(s.lock))
}

// version is 0 for a new store.
func (s *store) version() (int64, error) {
	made, err := s.writer.ask(`SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'`)
	if err != nil || made == 0 {
		return 0, err
	}
	return s.writer.ask(`SELECT version FROM schema_version`)
}

// upgrade runs under the lock, so it looks again.
func (s *store) upgrade(ctx context.Context, list []string) (err error) {
	version, err := s.version()
	if err != nil {
		return err
	}
	if version == 0 {
		if err := s.writer.do(`PRAGMA journal_mode = WAL`); err != nil {
			return err
		}
	} else if behind, err := migrations.Check(version, list); err != nil || !behind {
		return err
	} else if err := s.backup(version); err != nil {
		return fmt.Errorf("the backup before an upgrade: %w", err)
	}
	if err := s.writer.do(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer func() {
		if err != nil && !s.writer.AutocommitEnabled() {
			err = errors.Join(err, s.writer.do(`ROLLBACK`))
		}
	}()
	if err := migrations.Run(&tx{ctx: ctx, conn: s.writer}, list); err != nil {
		return err
	}
	return s.writer.do(`COMMIT`)
}

// backup writes a copy of the store to <file>.v<version>, complete or not at all.
func (s *store) backup(version int64) (err error) {
	name := fmt.Sprintf("%s.v%d", s.file, version)
	// SQLite writes into an empty file, which keeps its mode.
	f, err := os.OpenFile(name+".part", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	stmt, _, err := s.writer.PrepareTransient(`VACUUM INTO ?1`)
	if err != nil {
		return err
	}
	stmt.BindText(1, f.Name())
	_, err = stmt.Step()
	if err = errors.Join(err, stmt.Finalize()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
