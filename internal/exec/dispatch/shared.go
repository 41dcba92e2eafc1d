package dispatch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/ambit-run/ambit/internal/store/identity"
	"github.com/ambit-run/ambit/internal/store/state"
)

const (
	// queue is River's name for ours.
	queue = "intents"
	// cooldown is how soon a worker fetches again; River's own 100 ms would be
	// most of what a short program takes.
	cooldown = 2 * time.Millisecond
	// poll is how long a word of a new job may be missed.
	poll = time.Second
	// snooze is how long a job waits whose agent is just being replaced.
	snooze = 2 * time.Second
	// rescueAfter is when River looks after a job by its own clock. Who is dead
	// is known here, so that is only for what nobody needs any more.
	rescueAfter = 24 * time.Hour
	// migrationLock is held by the one who makes River's tables.
	migrationLock = 0x616d626974_03
)

// shared is the queue on PostgreSQL. River has connections of its own: it commits
// for itself, and what is written in an intent's transaction is one row.
type shared struct {
	desk *Queue
	pool *pgxpool.Pool

	mu     sync.Mutex
	client *river.Client[pgx.Tx] // nil if this desk takes no work
	kinds  []string              // what it takes
	name   string                // the owner as whom it does
	told   []string              // the kinds that are announced
	owner  string                // under which they are
}

// kindsOf are the kinds of River job for a manifest: whoever has the same manifest
// and the same root key knows them. The first is that of the key in force; the
// others are of what waits since before the key was rotated.
func kindsOf(k *identity.Keys, digest string) (kinds []string) {
	for mac := range k.MACs("kind of job", []byte(digest)) {
		kinds = append(kinds, "intent:"+hex.EncodeToString(mac[:16]))
	}
	return kinds
}

func openShared(ctx context.Context, d *Queue) (_ *shared, err error) {
	config, err := pgxpool.ParseConfig(d.options.URL)
	if err != nil {
		return nil, err // it masks the password
	}
	config.ConnConfig.RuntimeParams["application_name"] = "ambit queue"
	s := &shared{desk: d}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.pool.Close()
		}
	}()
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	return s, s.reload(ctx)
}

// migrate makes River's tables. River itself does not keep two from doing so at
// once.
func (s *shared) migrate(ctx context.Context) error {
	m, err := rivermigrate.New(riverpgxv5.New(s.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(migrationLock)); err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	_, unlockErr := conn.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(migrationLock))
	return errors.Join(err, unlockErr)
}

// job is what River knows of an intent.
type job struct {
	Intent string `json:"intent"`
	Level  int64  `json:"level"`

	kind string
}

// Kind is River's name for the manifest.
func (j job) Kind() string { return j.kind }

type hand struct {
	river.WorkerDefaults[job]
	desk   *Queue
	digest string
}

// Work does an intent. River is told that it is done in any case: what became of
// it is in the intent's own row.
func (h *hand) Work(_ context.Context, j *river.Job[job]) error {
	if err := h.desk.do(j.Args.Intent, h.digest); err != nil {
		return river.JobSnooze(snooze)
	}
	return nil
}

// reload takes intents of the manifests that are here now, and tells of it. It
// is asked again and again, since PostgreSQL may be away when the doors change,
// and since an owner that lost its connection has another name afterwards.
func (s *shared) reload(ctx context.Context) error {
	if s.desk.options.Gateways == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desk.open.Err() != nil {
		return nil // nobody would stop what is started now
	}
	hands := map[string]*hand{}
	digests := s.desk.options.Gateways.Digests()
	if s.desk.books.Journal.HandedOver() != nil {
		digests = nil // every door here is shut
	}
	for _, digest := range digests {
		for _, kind := range kindsOf(s.desk.books.Keys, digest) {
			hands[kind] = &hand{desk: s.desk, digest: digest}
		}
	}
	kinds, owner := slices.Sorted(maps.Keys(hands)), s.desk.books.DB.Owner()
	if !slices.Equal(kinds, s.kinds) || len(kinds) > 0 && owner != s.name {
		client, err := s.start(ctx, owner, hands)
		if err != nil {
			return err // the old client goes on
		}
		if old := s.client; old != nil {
			// What is under way goes on beside the new client.
			s.desk.work.Go(func() { _ = old.Stop(context.WithoutCancel(ctx)) })
		}
		s.client, s.kinds, s.name = client, kinds, owner
	}
	if slices.Equal(s.told, s.kinds) && (len(s.kinds) == 0 || s.owner == owner) {
		return nil
	}
	return s.announce(ctx)
}

// start has a client take the intents of some kinds; nil takes none.
func (s *shared) start(ctx context.Context, owner string, hands map[string]*hand) (*river.Client[pgx.Tx], error) {
	if len(hands) == 0 {
		return nil, nil
	}
	workers := river.NewWorkers()
	for kind, hand := range hands {
		river.AddWorkerArgs(workers, job{kind: kind}, hand)
	}
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		// A dead client's jobs are known by the lock of its owner.
		ID:      owner,
		Workers: workers, Queues: map[string]river.QueueConfig{queue: {MaxWorkers: s.desk.options.Concurrency}},
		FetchOnlyKnownKinds: true, FetchCooldown: cooldown, FetchPollInterval: poll,
		JobTimeout: -1, RescueStuckJobsAfter: rescueAfter, CompletedJobRetentionPeriod: time.Hour,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	// The client asks this too, but the end of its own context would end what is
	// under way.
	if err := s.pool.Ping(ctx); err != nil {
		return nil, err
	}
	return client, client.Start(context.WithoutCancel(ctx))
}

// stop takes no more work, and returns when what is under way has ended.
func (s *shared) stop() {
	s.mu.Lock()
	client, owner := s.client, s.owner
	s.mu.Unlock()
	if client != nil {
		_ = client.Stop(context.Background()) // only a context's end fails it
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimTime)
	defer cancel()
	err := s.desk.books.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`DELETE FROM workers WHERE owner = $1`, owner)
		return err
	})
	if err != nil {
		s.desk.options.Log("the end of this worker could not be told: %v", err)
	}
}

// announce says which kinds this desk takes, under its owner.
func (s *shared) announce(ctx context.Context) error {
	var owner string
	err := s.desk.books.DB.Write(ctx, func(tx state.Tx) error {
		owner = s.desk.books.DB.Owner()
		if _, err := tx.Exec(`DELETE FROM workers WHERE owner IN ($1, $2)`, owner, s.owner); err != nil {
			return err
		}
		for _, kind := range s.kinds {
			if _, err := tx.Exec(`INSERT INTO workers (owner, kind, since) VALUES ($1, $2, $3)`,
				owner, kind, time.Now().UnixMicro()); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.owner, s.told = owner, s.kinds
	}
	return err
}

const (
	putJob = `INSERT INTO river_job (args, kind, max_attempts, priority, queue, scheduled_at, created_at)
VALUES (CAST($1 AS TEXT)::jsonb, $2, 25, $3, '` + queue + `', to_timestamp($4 / 1000000.0), to_timestamp($4 / 1000000.0)) RETURNING id`
	wakeUp  = `SELECT CAST(count(pg_notify(current_schema() || '.river_insert', '{"queue": "` + queue + `"}')) AS BIGINT)`
	haveJob = `UPDATE intents SET job = $1 WHERE id = $2`
)

const putBoth = `WITH j AS (INSERT INTO river_job (args, kind, max_attempts, priority, queue, scheduled_at, created_at)
VALUES (CAST($14 AS TEXT)::jsonb, $13, 25, $8, '` + queue + `', to_timestamp($15 / 1000000.0), to_timestamp($15 / 1000000.0)) RETURNING id)
INSERT INTO intents (id, agent, digest, name, principal, parent, priority, level, over, repeatable, sealed,
state, owner, kind, job, attempts, cancel, asked, started, ended)
SELECT $1, $2, $3, $4, $5, $6, $7, CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BYTEA), $12, '', $13, j.id, 0, 0, CAST($15 AS BIGINT), 0, 0 FROM j`

// insertWithJob writes a new intent and its job. It is one statement that reads
// nothing, so that no other transaction can stand in its way.
func insertWithJob(tx state.Tx, i *Intent, args []any) error {
	if _, err := tx.Exec(putBoth, append(args, i.kind, i.jobArgs(), i.Asked.UnixMicro())...); err != nil {
		return err
	}
	return tx.Query(wakeUp, nil, func(state.Row) error { return nil })
}

func (i *Intent) jobArgs() string {
	return fmt.Sprintf(`{"intent":%q,"level":%d}`, i.ID, i.effective().level())
}

// insertJob writes another job for an intent, in the intent's own transaction.
// River's client can do so only in a transaction of pgx, of which the store has
// none to give away: its own begin, save and retry in their way. River's table
// is made to be written like this, and a test holds the two together.
func insertJob(tx state.Tx, i *Intent) error {
	err := tx.Query(putJob, []any{i.jobArgs(), i.kind, i.effective().level(), i.Asked.UnixMicro()}, func(row state.Row) error { return row.Scan(&i.job) })
	if err != nil {
		return err
	}
	if _, err := tx.Exec(haveJob, i.job, i.ID); err != nil {
		return err
	}
	return tx.Query(wakeUp, nil, func(state.Row) error { return nil })
}

const ageJobs = `UPDATE river_job SET priority = greatest(1, (args->>'level')::int - floor(extract(epoch FROM now() - created_at) / $1)::int)
WHERE state = 'available' AND queue = '` + queue + `' AND priority > 1 AND created_at < now() - make_interval(secs => $1)
AND priority > greatest(1, (args->>'level')::int - floor(extract(epoch FROM now() - created_at) / $1)::int)`

// age lifts the jobs that have waited, as the line in a process does.
func (s *shared) age(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, ageJobs, s.desk.options.Step.Seconds())
	return err
}

// lost are the intents that wait without a job that would bring them to somebody.
// As their owner they have the worker that fetched the job: if it lives, it is
// about to claim them.
func (s *shared) lost(ctx context.Context) ([]*Intent, error) {
	var found []*Intent
	err := s.desk.books.DB.Read(ctx, func(tx state.Tx) error {
		found = nil
		query := `SELECT i.id, i.agent, i.digest, i.name, i.principal, i.parent, i.priority, i.over, i.repeatable, i.state,
CASE WHEN j.state = 'running' THEN j.attempted_by[array_upper(j.attempted_by, 1)] ELSE '' END, i.kind, i.job, i.attempts, i.asked, i.started, i.ended
FROM intents i LEFT JOIN river_job j ON j.id = i.job
WHERE i.ended = 0 AND i.state = 'queued' AND (j.id IS NULL OR j.state IN ('running', 'completed', 'cancelled', 'discarded'))`
		return tx.Query(query, nil, func(row state.Row) error {
			i, err := scan(row)
			found = append(found, i)
			return err
		})
	})
	return found, err
}

// nobody marks an intent that no living worker takes.
func (d *Queue) nobody(ctx context.Context, i *Intent) error {
	if time.Since(i.Asked) < poll {
		return nil // somebody may just be taking it
	}
	var owners []string
	err := d.books.DB.Read(ctx, func(tx state.Tx) error {
		owners = nil
		return tx.Query(`SELECT owner FROM workers WHERE kind = $1`, []any{i.kind}, func(row state.Row) error {
			var owner string
			err := row.Scan(&owner)
			owners = append(owners, owner)
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, owner := range owners {
		if alive, err := d.books.DB.Alive(ctx, owner); err != nil || alive {
			return err
		}
	}
	i.State = NoWorker
	return nil
}
