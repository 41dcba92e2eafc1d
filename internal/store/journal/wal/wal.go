// Package wal is the book of first entry: what happened is written there at
// once, and posted to the journal in good time.
//
// A commit of a database writes several pages and costs more than the rest of a
// call. Most records settle nothing else in the store, so they need no
// transaction, only to be on the disk before anybody is told. A daybook is a
// file that one opening of the store appends to: each entry is its length, a
// checksum and its bytes, and those who write at the same time share one sync.
//
// Whoever posts reads the entries from where the store says that posting has
// come to, and moves that mark in the transaction that makes them records; so an
// entry is posted once, whoever does it. Files are never used again under the
// same name. An entry at the end of a file that is not whole was never
// acknowledged.
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
)

const (
	headSize = 8
	// MaxEntry is more than any entry has.
	MaxEntry = 2 << 20
	// fullSize is when a book is full and the next one begins.
	fullSize = 8 << 20
	// blockSize is what a file is written in. The last block is written again with
	// each page until it is full; what it held already stays the same in it.
	blockSize = 4 << 10
	// roomAfter entries the file is given room ahead, so that a sync has no new
	// size to write down.
	roomAfter = 16
	roomSize  = 1 << 20
	// maxSpare bounds the room that is kept for the next page.
	maxSpare = 256 << 10
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ErrClosed says that a book takes no more entries.
var ErrClosed = errors.New("the daybook is closed")

// Book is the daybook of one owner.
type Book struct {
	dir, owner string
	sync       func(*os.File) error
	syncFolder func(dir string) error

	mu      sync.Mutex
	file    *os.File
	number  int   // of the next file
	size    int64 // of what is on the disk
	room    int64 // of the file
	entries int
	next    *page
	spare   []byte // room for a page
	blocks  []byte // begins with what the file's last block holds
	writing bool
	turning bool      // the file is left as soon as nobody writes
	quiet   sync.Cond // writing has ended
	broken  error
}

// page is what goes to the disk together.
type page struct {
	bytes   []byte
	entries int
	crowd   bool          // more is not far
	done    chan struct{} // made when somebody waits
	err     error
}

// Open makes the daybook of an owner of the store. Its first file is made by the
// first entry.
func Open(dir, owner string) *Book {
	b := &Book{dir: dir, owner: owner, next: new(page), sync: syncData, syncFolder: SyncFolder}
	b.quiet.L = &b.mu
	return b
}

// A sync costs as much as a call. Where many calls are under way, the next entries
// are not far: whoever would write waits for them a moment.
const (
	many   = 16
	moment = 2 * time.Millisecond
)

// Write writes an entry, and returns when it is on the disk. After an error the
// book takes no more. Others is how many more calls are under way.
func (b *Book) Write(entry []byte, others int) error {
	if len(entry) == 0 || len(entry) > MaxEntry {
		return fmt.Errorf("an entry of %d bytes", len(entry))
	}
	b.mu.Lock()
	if b.broken != nil {
		b.mu.Unlock()
		return b.broken
	}
	p := b.next
	p.add(entry)
	p.crowd = p.crowd || others >= many
	if b.writing {
		if p.done == nil {
			p.done = make(chan struct{})
		}
		b.mu.Unlock()
		<-p.done
		return p.err
	}
	b.writing = true
	b.turn(p)
	if b.next.entries > 0 {
		go b.rest() // those who came meanwhile do not wait for this caller
	} else {
		b.rested()
	}
	b.mu.Unlock()
	return p.err
}

// rest writes until nobody waits.
func (b *Book) rest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.next.entries > 0 {
		b.turn(b.next)
		if b.turning {
			b.leave() // not only when nobody writes any more
		}
	}
	b.rested()
}

func (b *Book) rested() {
	b.writing = false
	if b.turning {
		b.leave()
	}
	b.quiet.Broadcast()
}

// turn writes a page. It is called, and returns, with the lock held.
func (b *Book) turn(p *page) {
	if p.crowd {
		b.mu.Unlock()
		time.Sleep(moment)
		b.mu.Lock()
	}
	b.next = &page{bytes: b.spare}
	b.spare = nil
	broken := b.broken
	b.mu.Unlock()
	if p.err = broken; p.err == nil {
		p.err = b.write(p)
	}
	b.mu.Lock()
	if cap(p.bytes) <= maxSpare {
		b.spare = p.bytes[:0]
	}
	if p.err != nil && b.broken == nil {
		b.broken = p.err
	}
	if p.done != nil {
		close(p.done)
	}
}

// write is done by one at a time.
func (b *Book) write(p *page) error {
	if err := b.roomFor(int64(len(p.bytes))); err != nil {
		return err
	}
	out, held := b.frame(p.bytes)
	_, err := b.file.WriteAt(out, b.size-int64(held))
	if err == nil {
		err = b.sync(b.file)
	}
	if err != nil {
		// Nobody was told of these entries, so nobody shall find them.
		return errors.Join(err, b.file.Truncate(b.size))
	}
	held += len(p.bytes)
	copy(b.blocks, out[held/blockSize*blockSize:held])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size += int64(len(p.bytes))
	b.entries += p.entries
	return nil
}

// frame puts a page behind what the last block holds, and zeros behind that.
func (b *Book) frame(page []byte) (out []byte, held int) {
	held = int(b.size % blockSize)
	n := roundUp(held + len(page))
	if len(b.blocks) < n {
		grown := aligned(n)
		copy(grown, b.blocks)
		b.blocks = grown
	}
	out = b.blocks[:n]
	clear(out[held+copy(out[held:], page):])
	return out, held
}

// roundUp is how much room n bytes take in whole blocks.
func roundUp(n int) int { return (n + blockSize - 1) / blockSize * blockSize }

// aligned makes room that begins where a block may begin in memory.
func aligned(n int) []byte {
	b := make([]byte, n+blockSize)
	at := int(uintptr(unsafe.Pointer(&b[0])) % blockSize)
	skip := roundUp(at) - at
	return b[skip : skip+n : skip+n]
}

func (b *Book) roomFor(n int64) error {
	if b.file == nil || b.size >= fullSize {
		if err := b.begin(); err != nil {
			return err
		}
	}
	if b.entries < roomAfter || b.size+n <= b.room {
		return nil
	}
	from := int64(roundUp(int(b.size))) // the last block has its zeros
	zeros := aligned(roundUp(int(n)) + roomSize)
	if _, err := b.file.WriteAt(zeros, from); err != nil {
		return err
	}
	b.room = from + int64(len(zeros))
	return nil
}

// begin makes the next file.
func (b *Book) begin() error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	if b.number == 0 { // the folder may be new, whoever has made it
		if err := b.syncFolder(filepath.Dir(b.dir)); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(b.dir, b.owner+"."+strconv.Itoa(b.number)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := b.syncFolder(b.dir); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	direct(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.file
	b.file, b.size, b.room, b.entries = f, 0, 0, 0
	b.number++
	if old != nil {
		return old.Close()
	}
	return nil
}

// Turn lets the next entry begin a new file, so that this one is over. Those who are
// writing come first.
func (b *Book) Turn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turning = true
	if !b.writing {
		b.leave()
	}
}

// leave is called with the lock held, when nobody writes.
func (b *Book) leave() {
	b.turning = false
	if b.file != nil {
		b.file.Close() // all that is in it was synced
		b.file = nil
	}
}

// Current is the name of the file that is being written, empty if there is none,
// and how much of it is on the disk.
func (b *Book) Current() (name string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		return "", 0
	}
	return filepath.Base(b.file.Name()), b.size
}

// Over reports whether nothing more is written to a file of this book: it is older
// than the one that is written to. One that is just being made is there before it is
// current, and it is not over.
func (b *Book) Over(f File) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		return f.Number < b.number-1
	}
	return f.Number < b.number
}

// Close lets nobody write any more. The files stay, to be posted.
func (b *Book) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.broken = ErrClosed
	}
	for b.writing {
		b.quiet.Wait()
	}
	if b.file == nil {
		return nil
	}
	err := b.file.Close()
	b.file = nil
	return err
}

func (p *page) add(entry []byte) {
	p.bytes = binary.LittleEndian.AppendUint32(p.bytes, uint32(len(entry)))
	p.bytes = binary.LittleEndian.AppendUint32(p.bytes, crc32.Checksum(entry, table))
	p.bytes = append(p.bytes, entry...)
	p.entries++
}

// File is a daybook's file.
type File struct {
	Name, Owner string
	Number      int
}

// Files lists the daybooks of a folder, the older of an owner first.
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

// Entries are what was read of a file.
type Entries struct {
	Bodies [][]byte
	// End is where the last of them ends.
	End int64
	// Left counts the bytes behind it that are no whole entry and not empty, if
	// there are no entries.
	Left int64
	// More says that there may be more than was read at once.
	More bool
}

// ToEnd reads a file as far as it goes.
const ToEnd = -1

// readSize is how much is read at once, unless an entry is larger.
const readSize = 256 << 10

// Read reads entries between two places in a file: at least one, if there is
// one. They lie in buf, or in a larger one that is returned for the next time.
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

// larger reports whether the first entry does not fit.
func larger(b []byte) bool {
	size := int64(binary.LittleEndian.Uint32(b))
	return size <= MaxEntry && headSize+size > int64(len(b))
}

// whole is the body of the first entry, nil if there is none that is whole.
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
