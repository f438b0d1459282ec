package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// git runs git in the tree and returns what it prints, without the spaces around it.
func (r *release) git(args ...string) (string, error) {
	return command(r.root, nil, "git", args...)
}

// command runs a program and returns its standard output, without the spaces around it.
// env is added to the environment. The error has what the program printed.
func command(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}

// export writes the files of a commit into a new directory: what git does not track is
// not there, as it is not in a module that somebody fetches.
func (r *release) export(commit, name string) (dir string, err error) {
	dir = filepath.Join(r.tmp, name)
	if err := os.Mkdir(dir, 0o750); err != nil {
		return "", err
	}
	archive := filepath.Join(r.tmp, name+".tar")
	if _, err := r.git("archive", "--format=tar", "--output="+archive, commit); err != nil {
		return "", err
	}
	_, err = command(dir, nil, "tar", "-xf", archive)
	return dir, err
}
