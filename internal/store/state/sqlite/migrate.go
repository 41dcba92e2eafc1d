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

// migrate upgrades the store to the newest schema. Usually the schema is already the newest. In that case, migrate
// only reads and needs no lock.
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

// version returns the schema version of the store. A new store has version 0.
func (s *store) version() (int64, error) {
	tables, err := s.writer.queryInt(`SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'`)
	if err != nil || tables == 0 {
		return 0, err
	}
	return s.writer.queryInt(`SELECT version FROM schema_version`)
}

// upgrade applies the missing migrations. The caller holds the store lock. The version is read again, because another
// process may have upgraded the store in the meantime.
func (s *store) upgrade(ctx context.Context, list []string) (err error) {
	version, err := s.version()
	if err != nil {
		return err
	}
	if version == 0 {
		if err := s.writer.exec(`PRAGMA journal_mode = WAL`); err != nil {
			return err
		}
	} else if behind, err := migrations.Check(version, list); err != nil || !behind {
		return err
	} else if err := s.backup(version); err != nil {
		return fmt.Errorf("cannot back up the store before the schema upgrade: %w", err)
	}
	if err := s.writer.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	defer func() {
		if err != nil && !s.writer.AutocommitEnabled() {
			err = errors.Join(err, s.writer.exec(`ROLLBACK`))
		}
	}()
	if err := migrations.Run(engine.NewTx(ctx, s.writer.statement), list); err != nil {
		return err
	}
	return s.writer.exec(`COMMIT`)
}

// backup copies the store to <file>.v<version>. The copy gets that name only when it is complete.
func (s *store) backup(version int64) (err error) {
	name := fmt.Sprintf("%s.v%d", s.file, version)
	// VACUUM INTO accepts an existing empty file and keeps the mode of the file.
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
