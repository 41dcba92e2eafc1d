package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// probeTemporary makes a folder and waits to be killed.
func probeTemporary() {
	dir, err := TempDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)
	}
	fmt.Println(dir, err)
	select {}
}

// TestTempDir checks that the next process removes the folder of a killed process, and no other folder.
func TestTempDir(t *testing.T) {
	temp := t.TempDir()
	begin := func() (string, *exec.Cmd) {
		t.Helper()
		cmd := exec.Command(probe())
		cmd.Env = []string{"PROBE=temporary", "TMPDIR=" + temp}
		stdout, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		line, err := bufio.NewReader(stdout).ReadString('\n')
		dir, ok := strings.CutSuffix(line, " <nil>\n")
		if err != nil || !ok {
			t.Fatalf("got line %q with error %v, want a folder", line, err)
		}
		return dir, cmd
	}
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	lives, _ := begin()
	dead, cmd := begin()
	cmd.Process.Kill()
	cmd.Wait()
	// This folder belongs to another machine. The process that made it may still run there.
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(temp, strings.Replace(filepath.Base(dead), boot, "0123456789ab", 1))
	if elsewhere == dead {
		t.Fatalf("%s does not contain the boot id %s", dead, boot)
	}
	// These entries have the prefix of the ended process but must stay: a link, a file, and another user's folder.
	kept := t.TempDir()
	link, file, foreign := dead+"1", dead+"2", dead+"3"
	err = errors.Join(os.Mkdir(elsewhere, 0o700), os.Symlink(kept, link), os.WriteFile(file, nil, 0o600), os.Mkdir(foreign, 0o700), os.WriteFile(filepath.Join(kept, "f"), nil, 0o600))
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(foreign, 1, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	begin()
	if there(dead) || !there(lives) || !there(link) || !there(file) || !there(filepath.Join(kept, "f")) || there(foreign) != (os.Geteuid() == 0) {
		t.Errorf("these still exist: the folder of the ended process %t, of the live process %t, the link %t, the file %t, the link's target %t, another user's folder %t",
			there(dead), there(lives), there(link), there(file), there(filepath.Join(kept, "f")), there(foreign))
	}
	if !there(elsewhere) {
		t.Error("the folder of another machine was removed")
	}
	if info, err := os.Stat(lives); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v with error %v, want a folder with mode 0700", info, err)
	}
}
