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
	"github.com/ambit-run/ambit/internal/store/state/postgres"
)

const (
	riverQueue = "intents"
	// fetchCooldown is the minimum time between two fetches of jobs. River's default is 100 ms, which is longer than
	// the run time of a short program.
	fetchCooldown = 2 * time.Millisecond
	// pollInterval is how often River polls for jobs. If a notification is missed, the job waits at most this long.
	pollInterval = time.Second
	// snooze is how long a job is delayed if this worker does not serve the job's agent at the moment.
	snooze = 2 * time.Second
	// rescueAfter is the run time after which River considers a job stuck. The queue itself detects dead workers by
	// their locks. River's check therefore only has to remove jobs without an intent.
	rescueAfter = 24 * time.Hour
	// maxConnections is the maximum number of River's connections. One of them waits for notifications.
	maxConnections = 4
	// migrationLock is the advisory lock that is held while River's tables are created.
	migrationLock = 0x616d626974_03
)

// pgQueue is the queue on PostgreSQL. River uses its own connections and transactions, with one exception: the
// transaction that writes an intent also writes the intent's River job.
type pgQueue struct {
	queue *Queue
	pool  *pgxpool.Pool

	mu             sync.Mutex
	client         *river.Client[pgx.Tx] // nil if this process accepts no intents
	kinds          []string              // the job kinds that the client accepts
	name           string                // the owner name with which the client was started
	announced      []string              // the job kinds of this process in the workers table
	announcedOwner string                // the owner name of this process in the workers table
}

// kindsOf returns the kinds of River jobs for the manifest with this digest. All workers with the same manifest and
// root key derive the same kinds. The first kind is for the current root key. The other kinds are for intents that were
// submitted before the root key was rotated.
func kindsOf(k *identity.Keys, digest string) (kinds []string) {
	for mac := range k.MACs("kind of job", []byte(digest)) {
		kinds = append(kinds, "intent:"+hex.EncodeToString(mac[:16]))
	}
	return kinds
}

func openShared(ctx context.Context, q *Queue) (_ *pgQueue, err error) {
	config, err := postgres.Config(q.options.URL, "ambit queue")
	if err != nil {
		return nil, err
	}
	// The default is one connection for each CPU. Many processes would then exceed the 100 connections that a server
	// accepts by default.
	config.MaxConns = maxConnections
	s := &pgQueue{queue: q}
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

// migrate creates River's tables. It holds a lock, because River does not prevent concurrent migrations.
func (s *pgQueue) migrate(ctx context.Context) error {
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

// job is the payload of an intent's River job.
type job struct {
	Intent string `json:"intent"`
	Level  int64  `json:"level"`

	kind string
}

// Kind returns the kind of the job, which identifies the manifest and the root key (see [kindsOf]).
func (j job) Kind() string { return j.kind }

// worker runs the intents of one job kind.
type worker struct {
	river.WorkerDefaults[job]
	queue  *Queue
	digest string
}

// Work runs an intent. It completes the job even if the intent failed, because the intent's row stores the outcome.
func (w *worker) Work(_ context.Context, j *river.Job[job]) error {
	if err := w.queue.run(j.Args.Intent, w.digest); err != nil {
		return river.JobSnooze(snooze)
	}
	return nil
}

// reload makes this process accept the job kinds of its current manifests, and writes the kinds to the workers table.
// It is called repeatedly for two reasons: PostgreSQL may be unreachable when the manifests change, and an owner that
// lost its connection gets a new name.
func (s *pgQueue) reload(ctx context.Context) error {
	if s.queue.options.Gateways == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.accepting.Err() != nil {
		return nil // the queue is being closed, and Close might not stop a new client
	}
	workers := map[string]*worker{}
	digests := s.queue.options.Gateways.Digests()
	if s.queue.store.Journal.HandedOver() != nil {
		digests = nil // after a rotation of the root key, every gateway of this process refuses calls
	}
	for _, digest := range digests {
		for _, kind := range kindsOf(s.queue.store.Keys, digest) {
			workers[kind] = &worker{queue: s.queue, digest: digest}
		}
	}
	kinds, owner := slices.Sorted(maps.Keys(workers)), s.queue.store.DB.Owner()
	if !slices.Equal(kinds, s.kinds) || len(kinds) > 0 && owner != s.name {
		client, err := s.start(ctx, owner, workers)
		if err != nil {
			return err // the old client keeps running
		}
		if old := s.client; old != nil {
			// The old client finishes its jobs while the new client is already running.
			s.queue.work.Go(func() { _ = old.Stop(context.WithoutCancel(ctx)) })
		}
		s.client, s.kinds, s.name = client, kinds, owner
	}
	if slices.Equal(s.announced, s.kinds) && (len(s.kinds) == 0 || s.announcedOwner == owner) {
		return nil
	}
	return s.announce(ctx)
}

// start starts a River client for these workers. If there are no workers, it returns nil.
func (s *pgQueue) start(ctx context.Context, owner string, workers map[string]*worker) (*river.Client[pgx.Tx], error) {
	if len(workers) == 0 {
		return nil, nil
	}
	registered := river.NewWorkers()
	for kind, worker := range workers {
		river.AddWorkerArgs(registered, job{kind: kind}, worker)
	}
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		ID:      owner, // River writes this ID into each job that the client fetches (see withoutJob)
		Workers: registered, Queues: map[string]river.QueueConfig{riverQueue: {MaxWorkers: s.queue.options.Concurrency}},
		FetchOnlyKnownKinds: true, FetchCooldown: fetchCooldown, FetchPollInterval: pollInterval,
		JobTimeout: -1, RescueStuckJobsAfter: rescueAfter, CompletedJobRetentionPeriod: time.Hour,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	// Ping checks the connection with ctx. Start must not get ctx, because canceling ctx would stop the running jobs.
	if err := s.pool.Ping(ctx); err != nil {
		return nil, err
	}
	return client, client.Start(context.WithoutCancel(ctx))
}

// stop stops accepting jobs and waits until all running jobs have ended.
func (s *pgQueue) stop() {
	s.mu.Lock()
	client, owner := s.client, s.announcedOwner
	s.mu.Unlock()
	if client != nil {
		_ = client.Stop(context.Background()) // Stop fails only if the context ends
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	err := s.queue.store.DB.Write(ctx, func(tx state.Tx) error {
		_, err := tx.Exec(`DELETE FROM workers WHERE owner = $1`, owner)
		return err
	})
	if err != nil {
		s.queue.options.Log("cannot remove this worker from the list of workers: %v", err)
	}
}

// announce writes the accepted job kinds to the workers table, under the current owner name.
func (s *pgQueue) announce(ctx context.Context) error {
	var owner string
	err := s.queue.store.DB.Write(ctx, func(tx state.Tx) error {
		owner = s.queue.store.DB.Owner()
		if _, err := tx.Exec(`DELETE FROM workers WHERE owner IN ($1, $2)`, owner, s.announcedOwner); err != nil {
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
		s.announcedOwner, s.announced = owner, s.kinds
	}
	return err
}

const (
	insertRiverJob = `INSERT INTO river_job (args, kind, max_attempts, priority, queue, scheduled_at, created_at)
VALUES (CAST($1 AS TEXT)::jsonb, $2, 25, $3, '` + riverQueue + `',
to_timestamp($4 / 1000000.0), to_timestamp($4 / 1000000.0)) RETURNING id`
	notifyWorkers = `SELECT CAST(count(pg_notify(current_schema() || '.river_insert',
'{"queue": "` + riverQueue + `"}')) AS BIGINT)`
	setJob = `UPDATE intents SET job = $1 WHERE id = $2`
)

const insertBoth = `WITH j AS (
INSERT INTO river_job (args, kind, max_attempts, priority, queue, scheduled_at, created_at)
VALUES (CAST($14 AS TEXT)::jsonb, $13, 25, $8, '` + riverQueue + `',
to_timestamp($15 / 1000000.0), to_timestamp($15 / 1000000.0)) RETURNING id)
INSERT INTO intents (id, agent, digest, name, principal, parent, priority, level, over, repeatable, sealed,
state, owner, kind, job, attempts, cancel, asked, started, ended)
SELECT $1, $2, $3, $4, $5, $6, $7, CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BYTEA),
$12, '', $13, j.id, 0, 0, CAST($15 AS BIGINT), 0, 0 FROM j`

// insertWithJob writes a new intent and its job. It uses a single statement that reads no table, so it does not
// conflict with other transactions.
func insertWithJob(tx state.Tx, i *Intent, args []any) error {
	if _, err := tx.Exec(insertBoth, append(args, i.kind, i.jobArgs(), i.Asked.UnixMicro())...); err != nil {
		return err
	}
	return tx.Query(notifyWorkers, nil, func(state.Row) error { return nil })
}

func (i *Intent) jobArgs() string {
	return fmt.Sprintf(`{"intent":%q,"level":%d}`, i.ID, i.effectivePriority().level())
}

// insertJob writes a new job for an existing intent, in the transaction that changes the intent. It does not use
// River's client, because the client needs a pgx transaction and the store does not expose one. River also supports
// jobs that are inserted with SQL.
func insertJob(tx state.Tx, i *Intent) error {
	err := tx.Query(insertRiverJob, []any{i.jobArgs(), i.kind, i.effectivePriority().level(), i.Asked.UnixMicro()},
		func(row state.Row) error { return row.Scan(&i.job) })
	if err != nil {
		return err
	}
	if _, err := tx.Exec(setJob, i.job, i.ID); err != nil {
		return err
	}
	return tx.Query(notifyWorkers, nil, func(state.Row) error { return nil })
}

const (
	agedLevel = `greatest(1, (args->>'level')::int - floor(extract(epoch FROM now() - created_at) / $1)::int)`
	ageJobs   = `UPDATE river_job SET priority = ` + agedLevel + `
WHERE state = 'available' AND queue = '` + riverQueue + `' AND priority > 1
AND created_at < now() - make_interval(secs => $1) AND priority > ` + agedLevel
)

// raisePriorities raises the priority of waiting jobs according to the rule of [waiter.levelAt].
func (s *pgQueue) raisePriorities(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, ageJobs, s.queue.options.Step.Seconds())
	return err
}

// withoutJob returns the queued intents that have no waiting job. If a worker has fetched the job of an intent,
// withoutJob sets this worker as the owner of the returned intent. The worker is about to claim the intent, so the
// intent is not an orphan while the worker is alive.
func (s *pgQueue) withoutJob(ctx context.Context) ([]*Intent, error) {
	var found []*Intent
	err := s.queue.store.DB.Read(ctx, func(tx state.Tx) error {
		found = nil
		query := `SELECT i.id, i.agent, i.digest, i.name, i.principal, i.parent, i.priority, i.over, i.repeatable, i.state,
CASE WHEN j.state = 'running' THEN j.attempted_by[array_upper(j.attempted_by, 1)] ELSE '' END,
i.kind, i.job, i.attempts, i.asked, i.started, i.ended
FROM intents i LEFT JOIN river_job j ON j.id = i.job
WHERE i.ended = 0 AND i.state = 'queued'
AND (j.id IS NULL OR j.state IN ('running', 'completed', 'cancelled', 'discarded'))`
		return tx.Query(query, nil, collect(&found))
	})
	return found, err
}

// servedShared reports whether a live worker accepts an intent.
func (q *Queue) servedShared(ctx context.Context, i *Intent) (bool, error) {
	if time.Since(i.Asked) < pollInterval {
		return true, nil // a worker may be fetching the job at this moment
	}
	var owners []string
	err := q.store.DB.Read(ctx, func(tx state.Tx) error {
		owners = nil
		return tx.Query(`SELECT owner FROM workers WHERE kind = $1`, []any{i.kind}, collectText(&owners))
	})
	if err != nil {
		return false, err
	}
	for _, owner := range owners {
		if alive, err := q.store.DB.Alive(ctx, owner); err != nil || alive {
			return alive, err
		}
	}
	return false, nil
}
