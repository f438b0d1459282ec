package pressure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	br := bufio.NewReaderSize(r, maxLine)
	skip := false
	for total := 0; ; {
		part, err := br.ReadSlice('\n')
		total += len(part)
		switch {
		case total > maxLines:
			return errTooLong
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
			continue
		case err != nil && err != io.EOF:
			return err
		}
		if len(part) > 0 && !skip {
			line := strings.TrimSuffix(strings.TrimSuffix(string(part), "\n"), "\r")
			if !do(line) {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		skip = false
	}
}

// readValue returns the content of a one-value file without the space around it.
func readValue(root fs.FS, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", fileError(name, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	if err == nil && len(b) > maxValue {
		err = errTooLong
	}
	if err != nil {
		return "", fileError(name, err)
	}
	return strings.TrimSpace(string(b)), nil
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
