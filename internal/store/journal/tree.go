package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/ambit-run/ambit/internal/store/state"
)

// A tile contains 256 neighboring hashes from one level of the tree. One level of tiles corresponds to eight levels
// of the tree.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// The place of a leaf is one number that combines the leaf's log and sequence number. Because the place is the primary
// key, the table needs no separate index, and an append writes one page less.
const (
	seqBits = 40
	maxSeq  = 1<<seqBits - 1
)

func place(log, seq int64) int64 { return log<<seqBits + seq }

// edge represents a tree by the roots of its complete subtrees, largest first. There is one root for each 1 bit in
// the size.
type edge struct {
	size  int64
	roots []tlog.Hash
}

// add appends a leaf. It returns the roots of the tiles that the leaf completes, lowest level first.
func (e *edge) add(h tlog.Hash) (complete []tileRoot) {
	e.size++
	n := e.size
	for level := 1; n&1 == 0; level++ {
		n >>= 1
		last := len(e.roots) - 1
		h = tlog.NodeHash(e.roots[last], h)
		e.roots = e.roots[:last]
		if level%tileHeight == 0 {
			complete = append(complete, tileRoot{level / tileHeight, n - 1, h})
		}
	}
	e.roots = append(e.roots, h)
	return complete
}

// tileRoot is the root of a complete tile. The root is added to a tile of the next level.
type tileRoot struct {
	level int   // the level of the tile to which the root is added
	n     int64 // the index of the root in that level
	hash  tlog.Hash
}

// root returns the root hash of the whole tree.
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

var errEdge = errors.New("the journal's head is damaged; to find the damage, run: ambit journal verify")

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

// addTile adds the root of a completed tile to a tile of the next level. If the completed tile contains leaves,
// addTile also stores the completed tile and indexes its records.
func addTile(tx state.Tx, log int64, root tileRoot) error {
	level, n := root.level, root.n
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
			return fmt.Errorf("some of the records %d to %d of log %d are missing; run: ambit journal verify",
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
		return putTile(tx, log, level, tile, root.hash[:])
	}
	hashes, err := getTile(tx, log, level, tile)
	if err != nil {
		return err
	}
	if len(hashes) != in*tlog.HashSize {
		return fmt.Errorf("tile %d on level %d of log %d is damaged; run: ambit journal verify", tile, level, log)
	}
	rows, err := tx.Exec(`UPDATE tiles SET hashes = $1 WHERE log = $2 AND level = $3 AND n = $4`,
		append(hashes, root.hash[:]...), log, int64(level), tile)
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

// getTile returns the hashes of a tile, or nil if the tile does not exist.
func getTile(tx state.Tx, log int64, level int, n int64) (hashes []byte, err error) {
	err = tx.Query(`SELECT hashes FROM tiles WHERE log = $1 AND level = $2 AND n = $3`, []any{log, int64(level), n},
		func(r state.Row) error { return r.Scan(&hashes) })
	return hashes, err
}

// nodeReader reads the nodes of a log's tree from the stored tiles. It does not check the tiles, because every proof is
// verified before it is returned.
type nodeReader struct {
	tx    state.Tx
	log   int64
	tiles map[[2]int64][]byte
}

func newNodeReader(tx state.Tx, log int64) *nodeReader {
	return &nodeReader{tx: tx, log: log, tiles: map[[2]int64][]byte{}}
}

// ReadHashes implements tlog.HashReader.
func (r *nodeReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
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

func (r *nodeReader) node(level int, n int64) (tlog.Hash, error) {
	above := level % tileHeight // how many levels the node is above the hashes in the tile
	first := n << above
	hashes, err := r.tileHashes(int64(level/tileHeight), first/tileWidth)
	if err != nil {
		return tlog.Hash{}, err
	}
	from, to := int(first%tileWidth)*tlog.HashSize, (int(first%tileWidth)+1<<above)*tlog.HashSize
	if to > len(hashes) {
		return tlog.Hash{}, fmt.Errorf("node %d on level %d of log %d is missing; run: ambit journal verify", n, level, r.log)
	}
	return fold(hashes[from:to]), nil
}

// tileHashes returns the hashes of a tile and caches them. The newest leaves have no tile yet, so their hashes are read
// from the leaves.
func (r *nodeReader) tileHashes(level, n int64) ([]byte, error) {
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

// fold returns the root of the subtree whose leaves are the given hashes. The number of hashes must be a power of two.
func fold(hashes []byte) tlog.Hash {
	var e edge
	for ; len(hashes) > 0; hashes = hashes[tlog.HashSize:] {
		e.add(tlog.Hash(hashes[:tlog.HashSize]))
	}
	return e.root()
}
