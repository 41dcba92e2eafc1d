// Command proxy runs Go's reverse proxy in front of a server. With -sync, it writes one block to the disk before each
// answer. This is the minimum cost of a durable journal.
package main

import (
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/ambit-run/ambit/bench/gateway/middle"
)

func main() {
	path := flag.String("sync", "", "the file to write blocks to")
	flag.Parse()
	if err := run(flag.Arg(0), *path); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run(target, path string) error {
	if path == "" {
		return middle.ServeProxy(target, nil)
	}
	j, err := open(path)
	if err != nil {
		return err
	}
	return middle.ServeProxy(target, j.commit)
}

const (
	block  = 4 << 10
	blocks = 256
)

// journal is a file with a fixed number of blocks. Commits overwrite the blocks in turn. Concurrent commits share a
// block.
type journal struct {
	f *os.File

	writing sync.Mutex // a mutex that is held while a block is written
	mu      sync.Mutex // the mutex of the fields below
	next    int64
	waiting *round
}

// round is one write to the disk, shared by all its waiters.
type round struct {
	once sync.Once
	err  error
}

func open(path string) (*journal, error) {
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(make([]byte, block*blocks))
	}
	if err == nil {
		err = f.Sync()
	}
	return &journal{f: f, waiting: &round{}}, err
}

// commit returns when a block has been written to the disk. Concurrent commits share one write.
func (j *journal) commit() error {
	j.mu.Lock()
	r := j.waiting
	j.mu.Unlock()
	r.once.Do(func() { r.err = j.write() })
	return r.err
}

// write writes one block. Commits that arrive before the write begins share it. Later commits belong to the next
// round.
func (j *journal) write() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	j.waiting = &round{}
	at := j.next % blocks * block
	j.next++
	j.mu.Unlock()
	if _, err := j.f.WriteAt(make([]byte, block), at); err != nil {
		return err
	}
	return syncData(j.f)
}
