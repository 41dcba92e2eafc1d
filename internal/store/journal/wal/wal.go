// Package wal implements the journal's write-ahead log. A process first writes records to this log and later posts
// them. To post a record means to copy it to the journal.
//
// A database commit writes several pages and takes longer than the rest of a call. Most records do not accompany
// another change in the store and need no transaction of their own. They only have to be on disk before they are
// acknowledged. Each process that opens the store appends to its own file. An entry consists of its length, a checksum
// and its bytes. Entries that are written at the same time share one sync.
//
// For each file, the table daybooks in the store contains the position up to which entries are posted. The
// transaction that appends records to the journal also updates this position. Each entry is therefore posted exactly
// once, no matter which process posts it. File names are never reused. An incomplete entry at the end of a file was
// never acknowledged.
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
	// MaxEntry is the maximum size of an entry in bytes.
	MaxEntry = 2 << 20
	// fullSize is the size at which a file is full and the next file begins.
	fullSize = 8 << 20
	// blockSize is the unit of writes. A block that is not full is written again with more entries. Its existing
	// bytes do not change.
	blockSize = 4 << 10
	// After growAfter entries, the file grows by growSize at a time. Most syncs then do not have to write a new file
	// size.
	growAfter = 16
	growSize  = 1 << 20
	// maxSpare is the maximum capacity of a buffer that is kept for the next page.
	maxSpare = 256 << 10
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ErrClosed means that the writer accepts no more entries.
var ErrClosed = errors.New("the write-ahead log is closed")

// Writer writes the write-ahead log of one owner. A process gets a new owner name each time it opens the store.
type Writer struct {
	dir, owner string
	sync       func(*os.File) error
	syncFolder func(dir string) error

	mu       sync.Mutex
	file     *os.File
	number   int    // the number of the next file
	size     int64  // the size of the file's entries on disk
	grown    int64  // the size to which prepare has grown the file
	entries  int    // the number of entries in the file
	next     *page  // the entries of the next write
	spare    []byte // a buffer for the next page
	blocks   []byte // the blocks to write; they begin with the content of the file's last block
	writing  bool
	rotating bool      // whether the file must be closed after the current write
	quiet    sync.Cond // a condition that is signaled when no write is in progress
	broken   error     // if not nil, all further writes fail with this error
}

// page contains the entries of one write.
type page struct {
	bytes   []byte
	entries int
	crowd   bool          // whether more entries are expected soon
	done    chan struct{} // a channel that is closed after the write; nil if no goroutine waits
	err     error
}

// Open returns a writer for files in a directory. The first Write creates the first file.
func Open(dir, owner string) *Writer {
	w := &Writer{dir: dir, owner: owner, next: new(page), sync: syncData, syncFolder: home.SyncFolder}
	w.quiet.L = &w.mu
	return w
}

// A sync is slow: it takes as long as a whole call. If at least 16 other calls are in progress, their entries will
// arrive soon, so a write waits for 2 milliseconds to include them.
const (
	many   = 16
	moment = 2 * time.Millisecond
)

// Write writes an entry and returns when the entry is on disk. The second parameter is the number of other calls in
// progress. After a failed write, the writer accepts no more entries.
func (w *Writer) Write(entry []byte, others int) error {
	if len(entry) == 0 || len(entry) > MaxEntry {
		return fmt.Errorf("a write-ahead log entry has %d bytes, but must have 1 to %d", len(entry), MaxEntry)
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
		go w.drain() // drain writes the later entries in the background, so that this call can return
	} else {
		w.finish()
	}
	w.mu.Unlock()
	return p.err
}

// drain writes pages until no entries are waiting.
func (w *Writer) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.next.entries > 0 {
		w.flush(w.next)
		if w.rotating {
			// Close the file here, because finish() runs only after this loop, which does not end under load.
			w.closeFile()
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

// flush writes a page and wakes the goroutines that wait for it. The caller must hold the mutex, which flush releases
// during the write.
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

// write writes a page and waits until it is on disk. Only one goroutine at a time may call write.
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
		// The entries were not acknowledged, so they must not reach the journal.
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

// frame returns the blocks to write. The blocks contain the bytes of the file's last block, then the page, and then
// zeros up to the end of a block. The second result is the number of bytes that come from the file's last block.
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

func roundUp(n int) int { return (n + blockSize - 1) / blockSize * blockSize }

// aligned returns n zero bytes at a memory address that is a multiple of blockSize. Direct writes require such
// addresses.
func aligned(n int) []byte {
	b := make([]byte, n+blockSize)
	at := int(uintptr(unsafe.Pointer(&b[0])) % blockSize)
	skip := roundUp(at) - at
	return b[skip : skip+n : skip+n]
}

// prepare opens a new file if there is no file or the file is full. If the file has no space for n bytes, prepare
// grows the file.
func (w *Writer) prepare(n int64) error {
	if w.file == nil || w.size >= fullSize {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if w.entries < growAfter || w.size+n <= w.grown {
		return nil
	}
	from := int64(roundUp(int(w.size))) // the rest of the last block already contains zeros
	zeros := aligned(roundUp(int(n)) + growSize)
	if _, err := w.file.WriteAt(zeros, from); err != nil {
		return err
	}
	w.grown = from + int64(len(zeros))
	return nil
}

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
	enableDirect(f)
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

// Rotate closes the current file after any write in progress. The next entry creates a new file.
func (w *Writer) Rotate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rotating = true
	if !w.writing {
		w.closeFile()
	}
}

// closeFile closes the current file, if any. The caller must hold the mutex and make sure that no write is in progress.
func (w *Writer) closeFile() {
	w.rotating = false
	if w.file != nil {
		w.file.Close() // ignore the error, because all content has been synced
		w.file = nil
	}
}

// Current returns the name of the current file and the size of its entries on disk. The name is empty if there is no
// current file.
func (w *Writer) Current() (name string, size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return "", 0
	}
	return filepath.Base(w.file.Name()), w.size
}

// Finished reports whether this writer has stopped adding entries to f. The file f must belong to this writer. The
// result is true if f is closed or older than the current file. It is false if f is the current file, or a new file
// that is about to become the current file.
func (w *Writer) Finished(f File) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		return f.Number < w.number-1
	}
	return f.Number < w.number
}

// Close closes the current file after any write in progress. Later calls of Write fail. The files are not removed,
// because their entries must be posted first.
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

// Files lists the write-ahead log files in a directory, ordered by owner and number. It returns nil if the directory
// does not exist.
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
	// End is the position at which the last entry ends.
	End int64
	// Left is the size of an incomplete entry at End. It is set only if Bodies is empty.
	Left int64
	// More is true if the file may contain further entries.
	More bool
}

// ToEnd can be passed to Read instead of an end position. It means the end of the file.
const ToEnd = -1

// readSize is the number of bytes that Read reads. If the first entry is larger, Read reads more.
const readSize = 256 << 10

// Read reads entries between two positions in a file. It returns at least one entry if there is one, but not
// necessarily all entries. The entries are slices of the given buffer, or of a new buffer if the given one is too
// small. Read returns the buffer for reuse.
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
	if err == nil && len(at) == len(buf) && needsMore(buf) {
		buf = make([]byte, headSize+MaxEntry)
		n, err = f.ReadAt(buf, from)
	}
	if err != nil && err != io.EOF {
		return e, buf, err
	}
	rest := buf[:n]
	for {
		body := firstEntry(rest)
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

// needsMore reports whether b contains only a part of the first entry.
func needsMore(b []byte) bool {
	size := int64(binary.LittleEndian.Uint32(b))
	return size <= MaxEntry && headSize+size > int64(len(b))
}

// firstEntry returns the body of the first entry in b. It returns nil if the entry is incomplete or damaged.
func firstEntry(b []byte) []byte {
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
