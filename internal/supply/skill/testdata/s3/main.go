// Command s3server is an S3 server with one empty bucket. It uses the same library as "rclone serve s3" and
// checks the signatures of requests. It prints its address when it listens, and exits when its standard
// input is closed.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

func main() {
	backend := s3mem.New()
	if err := backend.CreateBucket(context.Background(), "skills"); err != nil {
		log.Fatal(err)
	}
	server := gofakes3.New(backend, gofakes3.WithV4Auth(map[string]string{os.Args[1]: os.Getenv("SECRET_KEY")}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(http.Serve(l, server.Server()))
}
