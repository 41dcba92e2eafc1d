package sandbox

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The threads that start sandboxes end with the sandboxes. No thread of ambit keeps the mount namespace of a sandbox,
// not even the main thread, which Go never ends.
func TestNamespacesOfThreads(t *testing.T) {
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		do(t, Spec{Argv: []string{"/bin/true"}})
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		strange := 0
		threads, _ := filepath.Glob("/proc/self/task/*/ns/mnt")
		for _, thread := range threads {
			if ns, err := os.Readlink(thread); err == nil && ns != own {
				strange++
			}
		}
		if len(threads) > 0 && strange == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d threads have another mount namespace", strange, len(threads))
		}
	}
}

// A function on a new thread never runs on the main thread, even if the main thread is the only one that is free.
func TestOnNewThread(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	for range 1000 {
		thread := make(chan int)
		onNewThread(func() { thread <- unix.Gettid() })
		if <-thread == unix.Getpid() {
			t.Fatal("the function ran on the main thread")
		}
	}
}

// Runs with the same private folder have the same user. Servers with different folders have different users. The path of
// the folder, which an author can choose, does not decide the user.
func TestUsersOfServers(t *testing.T) {
	m := &machine{users: span{1000, 1 << 28}}
	user := func(folder string) int {
		return m.userFor(shape{mounts: []Mount{{Source: "/code", To: "/code"}, {Source: folder, To: Home, Write: true, Give: true}}})
	}
	parent := t.TempDir()
	made := func(name string) string {
		folder := filepath.Join(parent, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		return folder
	}
	first, second := made("one"), made("two")
	one, two := user(first), user(second)
	if one == two || one != user(first) {
		t.Errorf("the users are %d and %d, want two different ones", one, two)
	}
	for _, id := range []int{one, two} {
		if id < m.users.first || id >= m.users.first+m.users.count {
			t.Errorf("the user %d is not in the range of unused users", id)
		}
	}
	if err := os.Rename(first, first+"-before"); err != nil {
		t.Fatal(err)
	}
	if other := user(made("one")); other == one {
		t.Errorf("another folder of the same name has the same user, %d", other)
	}
}
