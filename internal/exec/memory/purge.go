package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/store/home"
	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// TTL returns how long records are kept: ttl in the table [memory] of a home's
// config.toml, such as "30d" or "12h". The default is [DefaultTTL].
func TTL(h home.Home) (time.Duration, error) {
	var table struct {
		TTL string `toml:"ttl"`
	}
	file := h.Config()
	found, err := home.ReadTable(file, "memory", &table)
	if err != nil || !found || table.TTL == "" {
		return DefaultTTL, err
	}
	ttl, err := home.Duration(table.TTL)
	if err != nil || ttl == 0 {
		return 0, fmt.Errorf(`%s: [memory]: ttl must be a duration such as "30d" or "12h"`, file)
	}
	return ttl, nil
}

// Purge deletes the records with these ids. Without ids it deletes all records
// older than before, or all records if before is zero. If an id is unknown,
// nothing is deleted. The journal records who purged.
func (m *Memory) Purge(
	ctx context.Context, agentID string, ids []string, before time.Time, by string,
) (gone int64, err error) {
	err = m.store.DB.Write(ctx, func(tx state.Tx) (err error) {
		gone = 0
		switch {
		case len(ids) > 0:
		case before.IsZero():
			gone, err = tx.Exec(`DELETE FROM memories WHERE agent = $1`, agentID)
		default:
			gone, err = tx.Exec(`DELETE FROM memories WHERE agent = $1 AND kept < $2`, agentID, before.UnixMicro())
		}
		for _, id := range ids {
			n, err := tx.Exec(`DELETE FROM memories WHERE agent = $1 AND id = $2`, agentID, id)
			if err == nil && n == 0 {
				err = fmt.Errorf("%w: %s", ErrUnknown, id)
			}
			if err != nil {
				return err
			}
			gone += n
		}
		if err != nil || gone == 0 {
			return err
		}
		var id [16]byte
		rand.Read(id[:]) // never fails
		_, err = m.store.Journal.Append(tx, &journal.Record{
			Time: m.now(), Call: hex.EncodeToString(id[:]), ID: agentID, Principal: by, Tool: "purge",
			Decision: journal.Allow, Stage: "memory",
			Detail: fmt.Sprintf("%d records of the memory of %s were deleted", gone, agentID),
		})
		return err
	})
	if err == nil {
		err = m.store.DB.Scrub(ctx)
	}
	return gone, err
}
