package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-go/headgate/scripts/tools/internal/snippet"
	"github.com/headgate-go/headgate/scripts/tools/internal/tree"
)

// A program is one file that a Markdown file shows, or of which it shows a part.
type program struct {
	name    string
	code    string
	modules []tree.Module
}

// runPrograms builds and runs, in an empty module each, the programs that the Markdown
// files show whole, and those of which they show a part.
func (c *consumer) runPrograms() error {
	programs, err := c.programs()
	if err != nil {
		return err
	}
	shown := make(map[string]bool)
	for _, p := range programs {
		if err := c.timed(p.name, func() error { return c.run(p) }); err != nil {
			return err
		}
		for _, m := range p.modules {
			shown[m.Dir] = true
		}
	}
	for _, m := range c.released() {
		if !shown[m.Dir] {
			fmt.Printf("consumer: no Markdown file shows a program with %s; its packages were built and its Examples run\n", m.Dir)
		}
	}
	return nil
}

func (c *consumer) programs() (programs []program, err error) {
	src := filepath.Join(c.tmp, "src")
	seen := make(map[string]bool)
	err = tree.Walk(src, func(name string) error {
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		blocks, err := snippet.Blocks(name, string(text))
		if err != nil {
			return err
		}
		for _, b := range blocks {
			p := program{name: b.String(), code: b.Code}
			if b.From != "" {
				whole, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(b.From)))
				if err != nil {
					return err
				}
				p = program{name: b.From, code: string(whole)}
			} else if !b.Program() {
				return fmt.Errorf("%s is no program and names no file: make snippets", b)
			}
			modules, ok, err := c.requires(p.name, p.code)
			if err != nil {
				return err
			}
			if p.modules = modules; ok && !seen[p.name] && (b.From == "" || alone(filepath.Join(src, b.From))) {
				seen[p.name] = true
				programs = append(programs, p)
			}
		}
		return nil
	})
	return programs, err
}

// alone is whether no other file is part of the program.
func alone(file string) bool {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
	tests, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*_test.go"))
	return err == nil && len(files)-len(tests) == 1
}

// The address on which the programs listen, as they write it.
const address = `":8080"`

// run builds a program and runs it: to its end, or, if it listens, until it has answered
// and been told to stop.
func (c *consumer) run(p program) error {
	dir, err := c.module(p.modules)
	if err != nil {
		return err
	}
	free, err := freeAddress()
	if err != nil {
		return err
	}
	serves := strings.Contains(p.code, address)
	code := strings.ReplaceAll(p.code, address, `"`+free+`"`)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o600); err != nil {
		return err
	}
	// What the program takes from others, gin itself for one, is required at the version of
	// our module already.
	if _, err := command(dir, c.env, "go", "build", "-o", "program", "."); err != nil {
		return err
	}
	if err := c.checkVersions(dir); err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(dir, "program"))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if serves {
		err = probe(free, p.code)
		_ = cmd.Process.Signal(syscall.SIGTERM) // if it is gone already, ended says why
	}
	select {
	case end := <-ended:
		if err == nil {
			err = end
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		err = fmt.Errorf("did not end within a minute (%w)", err)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out.String())
	}
	return nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// probe asks a program at the paths it has: /upload takes a small body and refuses, when
// it has just begun to come, one that is over the cap of one body; /metrics answers.
func probe(at, code string) error {
	conn, err := dial(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	if strings.Contains(code, "/upload") {
		resp, err := http.Post("http://"+at+"/upload", "text/plain", strings.NewReader(strings.Repeat("x", 1000)))
		if err := answered(resp, err, http.StatusOK, "1000 bytes"); err != nil {
			return fmt.Errorf("a small upload: %w", err)
		}
		// Its beginning comes, since Fiber looks at no request before 8 KiB of the body are there.
		fmt.Fprintf(conn, "POST /upload HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", at, 60<<20, strings.Repeat("x", 16<<10))
		resp, err = http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.Header.Get("Headgate-Reason") != "payload_too_large" {
			return fmt.Errorf("a large upload: %s, no Headgate-Reason that fits: %v", resp.Status, resp.Header)
		}
		if err := answered(resp, err, http.StatusRequestEntityTooLarge, ""); err != nil {
			return fmt.Errorf("a large upload is not refused as it begins: %w", err)
		}
	}
	if strings.Contains(code, "/metrics") {
		resp, err := http.Get("http://" + at + "/metrics")
		if err := answered(resp, err, http.StatusOK, "admission"); err != nil {
			return fmt.Errorf("the metrics: %w", err)
		}
	}
	return nil
}

// dial connects as soon as somebody listens.
func dial(at string) (net.Conn, error) {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			return conn, conn.SetDeadline(time.Now().Add(30 * time.Second))
		}
		if time.Since(start) > 30*time.Second {
			return nil, fmt.Errorf("does not listen: %w", err)
		}
	}
}

func answered(resp *http.Response, err error, status int, text string) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != status || !strings.Contains(string(body), text) {
		return fmt.Errorf("answered %s: %q", resp.Status, body)
	}
	return nil
}
