package pressure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

const (
	// maxLine bounds a line that is looked at; a longer one (an overlay mount with hundreds
	// of layers) is skipped.
	maxLine = 64 << 10

	// maxLines bounds a file of lines, in bytes. Nodes with thousands of mounts have a
	// mountinfo of a few MiB.
	maxLines = 16 << 20

	// maxValue bounds a file that holds one number.
	maxValue = 4 << 10

	// maxKeys bounds a file of keys with a number each. memory.stat has some 2 KiB.
	maxKeys = 64 << 10
)

var (
	errTooLong = errors.New("longer than any real one, not read to its end")

	errZeroLimit = errors.New("0 or less is no usable limit, passed over")
)

// readLines gives each line of a file to do, without its end (LF or CRLF), until do returns
// false. The lines before an error count; a line that the error cuts does not.
func readLines(root fs.FS, name string, do func(line string) bool) error {
	f, err := root.Open(name)
	if err != nil {
		return fileError(name, err)
	}
	defer f.Close()
	return fileError(name, eachLine(f, do))
}

func eachLine(r io.Reader, do func(line string) bool) error {
	br := bufio.NewReader(r)
	var long []byte // the line so far, where it is longer than the reader's buffer
	size := 0       // of the line so far
	for total := 0; ; {
		part, err := br.ReadSlice('\n')
		total += len(part)
		size += len(part)
		full := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case total > maxLines:
			return errTooLong
		case err != nil && err != io.EOF && !full:
			return err
		case size >= maxLine:
			long = nil
		case full || long != nil:
			long = append(long, part...)
			part = long
		}
		if full {
			continue
		}
		if size > 0 && size < maxLine {
			line := strings.TrimSuffix(strings.TrimSuffix(string(part), "\n"), "\r")
			if !do(line) {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		long, size = nil, 0
	}
}

// readValue returns the content of a one-value file without the space around it.
func readValue(root fs.FS, name string) (string, error) {
	s, err := readAll(root, name, maxValue)
	return strings.TrimSpace(s), err
}

// readAll returns the content of a file of at most so many bytes.
func readAll(root fs.FS, name string, most int64) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", fileError(name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = errTooLong
	}
	if err != nil {
		return "", fileError(name, err)
	}
	return string(b), nil
}

// readCount reads a file with one number of bytes, which may be 0.
func readCount(root fs.FS, name string) (int64, error) {
	s, err := readValue(root, name)
	if err != nil {
		return 0, err
	}
	n, ok := parseCount(s)
	if !ok {
		return 0, fileError(name, fmt.Errorf("%.40q is no number of bytes", s))
	}
	return n, nil
}

// parseCount reads a number >= 0 that is below noLimit: what is beyond cannot be added up.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n >= uint64(noLimit) {
		return 0, false
	}
	return int64(n), true
}

// readKeys reads a file of lines "key number" into those of into that it has. What is
// missing or malformed leaves a value alone.
func readKeys(root fs.FS, name string, into map[string]*int64) error {
	s, err := readAll(root, name, maxKeys)
	if err != nil {
		return err
	}
	parseKeys(s, into)
	return nil
}

func parseKeys(s string, into map[string]*int64) {
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		p := into[key]
		if p == nil {
			continue
		}
		if n, ok := parseCount(value); ok {
			*p = n
		}
	}
}

// fileError names the file once, by its absolute path.
func fileError(name string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("/%s: %w", name, err)
}
