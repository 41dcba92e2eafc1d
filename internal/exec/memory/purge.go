package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ambit-run/ambit/internal/store/journal"
	"github.com/ambit-run/ambit/internal/store/state"
)

// Purge makes an agent forget the records of these ids; without any, all that are
// older than a time, or all there are if it is zero. If one of the ids is not
// there, nothing is forgotten. Who did it is journaled.
func (m *Memory) Purge(ctx context.Context, agentID string, ids []string, before time.Time, by string) (gone int64, err error) {
	err = m.books.DB.Write(ctx, func(tx state.Tx) (err error) {
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
		_, err = m.books.Journal.Append(tx, &journal.Record{
			Time: m.now(), Call: hex.EncodeToString(id[:]), ID: agentID, Principal: by, Tool: "purge", Decision: journal.Allow, Stage: "memory",
			Detail: fmt.Sprintf("%d records of the memory of %s were deleted", gone, agentID),
		})
		return err
	})
	if err == nil {
		err = m.books.DB.Scrub(ctx)
	}
	return gone, err
}
