package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/state/engine"
	"github.com/ambit-run/ambit/internal/store/state/migrations"
)

// migrate brings the store to the newest schema. If the schema is current, which is the
// case at nearly every start, migrate only reads and takes no lock.
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
	return errors.Join(s.upgrade(ctx, list), home.Unlock(s.lock))
}

// version returns 0 for a new store.
func (s *store) version() (int64, error) {
	tables, err := s.writer.ask(`SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'`)
	if err != nil || tables == 0 {
		return 0, err
	}
	return s.writer.ask(`SELECT version FROM schema_version`)
}

// upgrade runs under the lock. It reads the version again, because another process may
// have upgraded the store meanwhile.
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
	if err := migrations.Run(engine.NewTx(ctx, s.writer.statement), list); err != nil {
		return err
	}
	return s.writer.do(`COMMIT`)
}

// backup writes a copy of the store to <file>.v<version>. The copy appears under this
// name only when it is complete.
func (s *store) backup(version int64) (err error) {
	name := fmt.Sprintf("%s.v%d", s.file, version)
	// SQLite accepts an empty file and leaves its mode as it is.
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
