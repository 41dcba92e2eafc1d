// Package wal implements the journal's write-ahead log: a process writes records to it at
// once and posts them to the journal later.
//
// A database commit writes several pages and costs more than the rest of a call. Most
// records belong to no other change in the store, so they need no transaction; they only
// have to be on disk before they are acknowledged. One opening of the store appends to one
// file. Each entry is its length, a checksum and its bytes. Concurrent writers share a
// sync.
//
// Posting reads the entries from the position in the store's daybooks table, and updates
// the position in the transaction that appends the records. So an entry is posted exactly
// once, whichever process does it. File names are never reused. An incomplete entry at the
// end of a file was never acknowledged.
package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ambit-run/ambit/internal/store/home"
)

const (
	headSize = 8
	// MaxEntry is larger than any entry.
	MaxEntry = 2 << 20
	// fullSize is the size after which the next file begins.
	fullSize = 8 << 20
	// blockSize is the unit of writes. The last block is rewritten with each page until
	// it is full; its earlier content stays the same.
	blockSize = 4 << 10
	// After growAfter entries the file grows by growSize at a time, so that most syncs do
	// not have to write a new file size.
	growAfter = 16
	growSize  = 1 << 20
	// maxSpare bounds the buffer that is kept for the next page.
	maxSpare = 256 << 10
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ErrClosed means that a writer accepts no more entries.
var ErrClosed = errors.New("the write-ahead log is closed")

// Writer writes the write-ahead log of one owner.
type Writer struct {
	dir, owner string
	sync       func(*os.File) error
	syncFolder func(dir string) error

	mu       sync.Mutex
	file     *os.File
	number   int   // of the next file
	size     int64 // of the entries on disk
	grown    int64 // the size of the file
	entries  int
	next     *page
	spare    []byte // buffer for the next page
	blocks   []byte // begins with the content of the file's last block
	writing  bool
	rotating bool      // the file is closed when the current write ends
	quiet    sync.Cond // signals that writing has ended
	broken   error
}

// page contains the entries of one write.
type page struct {
	bytes   []byte
	entries int
	crowd   bool          // more entries are expected soon
	done    chan struct{} // closed after the write; nil without waiters
	err     error
}

// Open returns the writer of an owner of the store. The first entry creates the first
// file.
func Open(dir, owner string) *Writer {
	w := &Writer{dir: dir, owner: owner, next: new(page), sync: syncData, syncFolder: home.SyncFolder}
	w.quiet.L = &w.mu
	return w
}

// A sync costs as much as a call. If many calls are in progress, the next entries will
// arrive soon, so a write waits for them for a moment.
const (
	many   = 16
	moment = 2 * time.Millisecond
)

// Write writes an entry and returns when it is on disk. After an error the writer accepts
// no more entries. others is the number of other calls in progress.
func (w *Writer) Write(entry []byte, others int) error {
	if len(entry) == 0 || len(entry) > MaxEntry {
		return fmt.Errorf("an entry of %d bytes", len(entry))
	}
	w.mu.Lock()
	if w.broken != nil {
		w.mu.Unlock()
		return w.broken
	}
	p := w.next
	p.add(entry)
	p.crowd = p.crowd || others >= many
	if w.writing {
		if p.done == nil {
			p.done = make(chan struct{})
		}
		w.mu.Unlock()
		<-p.done
		return p.err
	}
	w.writing = true
	w.flush(p)
	if w.next.entries > 0 {
		go w.drain() // this caller need not wait for later entries
	} else {
		w.finish()
	}
	w.mu.Unlock()
	return p.err
}

// drain writes pages until no entry waits.
func (w *Writer) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.next.entries > 0 {
		w.flush(w.next)
		if w.rotating {
			w.closeFile() // also under a constant load
		}
	}
	w.finish()
}

func (w *Writer) finish() {
	w.writing = false
	if w.rotating {
		w.closeFile()
	}
	w.quiet.Broadcast()
}

// flush writes a page. The lock is held before and after the call.
func (w *Writer) flush(p *page) {
	if p.crowd {
		w.mu.Unlock()
		time.Sleep(moment)
		w.mu.Lock()
	}
	w.next = &page{bytes: w.spare}
	w.spare = nil
	broken := w.broken
	w.mu.Unlock()
	if p.err = broken; p.err == nil {
		p.err = w.write(p)
	}
	w.mu.Lock()
	if cap(p.bytes) <= maxSpare {
		w.spare = p.bytes[:0]
	}
	if p.err != nil && w.broken == nil {
		w.broken = p.err
	}
	if p.done != nil {
		close(p.done)
	}
}

// write writes a page. One goroutine at a time calls it.
func (w *Writer) write(p *page) error {
	if err := w.prepare(int64(len(p.bytes))); err != nil {
		return err
	}
	out, held := w.frame(p.bytes)
	_, err := w.file.WriteAt(out, w.size-int64(held))
	if err == nil {
		err = w.sync(w.file)
	}
	if err != nil {
		// These entries were not acknowledged, so they must not be posted.
		return errors.Join(err, w.file.Truncate(w.size))
	}
	held += len(p.bytes)
	copy(w.blocks, out[held/blockSize*blockSize:held])
	w.mu.Lock()
	defer w.mu.Unlock()
	w.size += int64(len(p.bytes))
	w.entries += p.entries
	return nil
}

// frame returns whole blocks: the content of the last block, the page, and zeros.
func (w *Writer) frame(page []byte) (out []byte, held int) {
	held = int(w.size % blockSize)
	n := roundUp(held + len(page))
	if len(w.blocks) < n {
		grown := aligned(n)
		copy(grown, w.blocks)
		w.blocks = grown
	}
	out = w.blocks[:n]
	clear(out[held+copy(out[held:], page):])
	return out, held
}

// roundUp returns the size of n bytes in whole blocks.
func roundUp(n int) int { return (n + blockSize - 1) / blockSize * blockSize }

// aligned returns n zero bytes that begin at a multiple of the block size in memory, as
// direct writes require.
func aligned(n int) []byte {
	b := make([]byte, n+blockSize)
	at := int(uintptr(unsafe.Pointer(&b[0])) % blockSize)
	skip := roundUp(at) - at
	return b[skip : skip+n : skip+n]
}

// prepare makes sure that there is a file with space for n bytes.
func (w *Writer) prepare(n int64) error {
	if w.file == nil || w.size >= fullSize {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if w.entries < growAfter || w.size+n <= w.grown {
		return nil
	}
	from := int64(roundUp(int(w.size))) // the rest of the last block is zero already
	zeros := aligned(roundUp(int(n)) + growSize)
	if _, err := w.file.WriteAt(zeros, from); err != nil {
		return err
	}
	w.grown = from + int64(len(zeros))
	return nil
}

// begin creates the next file.
func (w *Writer) begin() error {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	if w.number == 0 { // this or another process may have just created the directory
		if err := w.syncFolder(filepath.Dir(w.dir)); err != nil {
			return err
		}
	}
	name := filepath.Join(w.dir, w.owner+"."+strconv.Itoa(w.number))
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := w.syncFolder(w.dir); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	direct(f)
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.file
	w.file, w.size, w.grown, w.entries = f, 0, 0, 0
	w.number++
	if old != nil {
		return old.Close()
	}
	return nil
}

// Rotate ends the current file after the write in progress; the next entry begins a new
// file.
func (w *Writer) Rotate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotating = true
	if !w.writing {
		w.closeFile()
	}
}

// closeFile is called with the lock held while no write is in progress.
func (w *Writer) closeFile() {
	w.rotating = false
	if w.file != nil {
		w.file.Close() // its content is synced
		w.file = nil
	}
}

// Current returns the name of the current file, or "" if there is none, and how much of it
// is on disk.
func (w *Writer) Current() (name string, size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return "", 0
	}
	return filepath.Base(w.file.Name()), w.size
}

// Over reports whether a file of this writer gets no more entries because it is older than
// the current one. A file that is being created exists before it is current, and it is not
// over.
func (w *Writer) Over(f File) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		return f.Number < w.number-1
	}
	return f.Number < w.number
}

// Close refuses further entries and waits for the write in progress. The files stay until
// they are posted.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = ErrClosed
	}
	for w.writing {
		w.quiet.Wait()
	}
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

func (p *page) add(entry []byte) {
	p.bytes = binary.LittleEndian.AppendUint32(p.bytes, uint32(len(entry)))
	p.bytes = binary.LittleEndian.AppendUint32(p.bytes, crc32.Checksum(entry, table))
	p.bytes = append(p.bytes, entry...)
	p.entries++
}

// File is a file of a write-ahead log.
type File struct {
	Name, Owner string
	Number      int
}

// Files lists the files in a directory, ordered by owner and age.
func Files(dir string) (files []File, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		owner, number, ok := strings.Cut(e.Name(), ".")
		if n, err := strconv.Atoi(number); ok && err == nil && e.Type().IsRegular() {
			files = append(files, File{e.Name(), owner, n})
		}
	}
	slices.SortStableFunc(files, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Number, b.Number))
	})
	return files, err
}

// Entries is the result of Read.
type Entries struct {
	Bodies [][]byte
	// End is the end of the last entry.
	End int64
	// Left is the size of an incomplete entry at End, if there are no other entries.
	Left int64
	// More is set if there may be further entries.
	More bool
}

// ToEnd makes Read read to the end of a file.
const ToEnd = -1

// readSize is the size of one read, unless an entry is larger.
const readSize = 256 << 10

// Read reads entries between two positions in a file: at least one, if there is one. The
// entries use the memory of buf, or of a larger buffer, which is returned for reuse.
func Read(path string, from, to int64, buf []byte) (Entries, []byte, error) {
	e := Entries{End: from}
	f, err := os.Open(path)
	if err != nil {
		return e, buf, err
	}
	defer f.Close()
	if len(buf) < readSize {
		buf = make([]byte, readSize)
	}
	at := buf
	if to != ToEnd {
		at = buf[:max(0, min(int64(len(buf)), to-from))]
	}
	n, err := f.ReadAt(at, from)
	if err == nil && len(at) == len(buf) && larger(buf) {
		buf = make([]byte, headSize+MaxEntry)
		n, err = f.ReadAt(buf, from)
	}
	if err != nil && err != io.EOF {
		return e, buf, err
	}
	rest := buf[:n]
	for {
		body := whole(rest)
		if body == nil {
			break
		}
		e.Bodies = append(e.Bodies, body)
		e.End += int64(headSize + len(body))
		rest = rest[headSize+len(body):]
	}
	e.More = n == len(buf) && len(e.Bodies) > 0
	if len(e.Bodies) == 0 {
		for i, c := range rest {
			if c != 0 {
				e.Left = int64(i) + 1
			}
		}
	}
	return e, buf, nil
}

// larger reports whether the first entry is larger than b.
func larger(b []byte) bool {
	size := int64(binary.LittleEndian.Uint32(b))
	return size <= MaxEntry && headSize+size > int64(len(b))
}

// whole returns the body of the first entry, or nil if the entry is not complete.
func whole(b []byte) []byte {
	if len(b) < headSize {
		return nil
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if size == 0 || size > MaxEntry || headSize+size > int64(len(b)) {
		return nil
	}
	body := b[headSize : headSize+size]
	if crc32.Checksum(body, table) != binary.LittleEndian.Uint32(b[4:]) {
		return nil
	}
	return body
}
