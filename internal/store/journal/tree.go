package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A tile contains 256 neighbouring hashes, so one level of tiles spans eight levels of the
// tree.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// The place of a leaf combines its log and its number. A table in the order of places
// needs no separate index, so an append writes one page less.
const (
	seqBits = 40
	maxSeq  = 1<<seqBits - 1
)

func place(log, seq int64) int64 { return log<<seqBits + seq }

// edge represents a tree by the roots of its complete subtrees, largest first: one for
// each set bit of the size.
type edge struct {
	size  int64
	roots []tlog.Hash
}

// add appends a leaf. It calls up for each root of a whole tile, lowest first, with the
// root's level and its number among the tile roots of that level.
func (e *edge) add(h tlog.Hash, up func(level int, n int64, root tlog.Hash) error) error {
	e.size++
	n := e.size
	for level := 1; n&1 == 0; level++ {
		n >>= 1
		last := len(e.roots) - 1
		h = tlog.NodeHash(e.roots[last], h)
		e.roots = e.roots[:last]
		if level%tileHeight == 0 {
			if err := up(level/tileHeight, n-1, h); err != nil {
				return err
			}
		}
	}
	e.roots = append(e.roots, h)
	return nil
}

// root returns the hash of the whole tree.
func (e *edge) root() tlog.Hash {
	if e.size == 0 {
		return sha256.Sum256(nil)
	}
	h := e.roots[len(e.roots)-1]
	for i := len(e.roots) - 2; i >= 0; i-- {
		h = tlog.NodeHash(e.roots[i], h)
	}
	return h
}

func (e *edge) append(b []byte) []byte {
	for i := range e.roots {
		b = append(b, e.roots[i][:]...)
	}
	return b
}

var errEdge = errors.New("the journal's head is damaged: run ambit journal verify")

func (e *edge) read(size int64, b []byte) error {
	if size < 0 || len(b) != bits.OnesCount64(uint64(size))*tlog.HashSize {
		return errEdge
	}
	e.size, e.roots = size, e.roots[:0]
	for ; len(b) > 0; b = b[tlog.HashSize:] {
		e.roots = append(e.roots, tlog.Hash(b[:tlog.HashSize]))
	}
	return nil
}

// tileRoot is the root of a whole tile, with the arguments of edge.add's up.
type tileRoot struct {
	level int
	n     int64
	root  tlog.Hash
}

// addTile stores the root of a completed tile in the tile above. At level 1 it also stores
// the completed tile of leaves and its entries in the index.
func addTile(tx state.Tx, log int64, level int, n int64, root tlog.Hash) error {
	if level == 1 {
		rows, err := collectRows(tx, log, n*tileWidth, (n+1)*tileWidth)
		if err != nil {
			return err
		}
		hashes := make([]byte, 0, tileWidth*tlog.HashSize)
		for _, r := range rows {
			hashes = append(hashes, r.hash...)
		}
		if len(hashes) != tileWidth*tlog.HashSize {
			return fmt.Errorf("records are missing from %d to %d of log %d: run ambit journal verify",
				n*tileWidth, (n+1)*tileWidth-1, log)
		}
		if err := putTile(tx, log, 0, n, hashes); err != nil {
			return err
		}
		if err := addToIndex(tx, log, n, rows); err != nil {
			return err
		}
	}
	tile, in := n/tileWidth, int(n%tileWidth)
	if in == 0 {
		return putTile(tx, log, level, tile, root[:])
	}
	hashes, err := getTile(tx, log, level, tile)
	if err != nil {
		return err
	}
	if len(hashes) != in*tlog.HashSize {
		return fmt.Errorf("tile %d of level %d of log %d is damaged: run ambit journal verify", tile, level, log)
	}
	rows, err := tx.Exec(`UPDATE tiles SET hashes = $1 WHERE log = $2 AND level = $3 AND n = $4`,
		append(hashes, root[:]...), log, int64(level), tile)
	if err == nil && rows != 1 {
		err = errEdge
	}
	return err
}

func putTile(tx state.Tx, log int64, level int, n int64, hashes []byte) error {
	_, err := tx.Exec(`INSERT INTO tiles (log, level, n, hashes) VALUES ($1, $2, $3, $4)`,
		log, int64(level), n, hashes)
	return err
}

// getTile returns the hashes of a tile, or nil if it does not exist.
func getTile(tx state.Tx, log int64, level int, n int64) (hashes []byte, err error) {
	err = tx.Query(`SELECT hashes FROM tiles WHERE log = $1 AND level = $2 AND n = $3`, []any{log, int64(level), n},
		func(r state.Row) error { return r.Scan(&hashes) })
	return hashes, err
}

// nodes reads the nodes of a log's tree from its tiles. The tiles are not trusted: a proof
// is verified before it is returned.
type nodes struct {
	tx    state.Tx
	log   int64
	tiles map[[2]int64][]byte
}

func newNodes(tx state.Tx, log int64) *nodes {
	return &nodes{tx: tx, log: log, tiles: map[[2]int64][]byte{}}
}

// ReadHashes implements tlog.HashReader.
func (r *nodes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		h, err := r.node(level, n)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

func (r *nodes) node(level int, n int64) (tlog.Hash, error) {
	above := level % tileHeight // levels above the tile's own hashes
	first := n << above
	hashes, err := r.tile(int64(level/tileHeight), first/tileWidth)
	if err != nil {
		return tlog.Hash{}, err
	}
	from, to := int(first%tileWidth)*tlog.HashSize, (int(first%tileWidth)+1<<above)*tlog.HashSize
	if to > len(hashes) {
		return tlog.Hash{}, fmt.Errorf("node %d of level %d of log %d is missing: run ambit journal verify", n, level, r.log)
	}
	return fold(hashes[from:to]), nil
}

// tile reads a tile once. The hashes of the newest leaves are not stored as a tile yet.
func (r *nodes) tile(level, n int64) ([]byte, error) {
	key := [2]int64{level, n}
	if hashes, ok := r.tiles[key]; ok {
		return hashes, nil
	}
	hashes, err := getTile(r.tx, r.log, int(level), n)
	if err == nil && hashes == nil && level == 0 {
		err = readRows(r.tx, r.log, n*tileWidth, (n+1)*tileWidth, func(one row) error {
			hashes = append(hashes, one.hash...)
			return nil
		})
	}
	r.tiles[key] = hashes
	return hashes, err
}

// fold returns the root over a power of two of neighbours.
func fold(hashes []byte) tlog.Hash {
	var e edge
	for ; len(hashes) > 0; hashes = hashes[tlog.HashSize:] {
		_ = e.add(tlog.Hash(hashes[:tlog.HashSize]), func(int, int64, tlog.Hash) error { return nil })
	}
	return e.root()
}
