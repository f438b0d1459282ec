module github.com/headgate-go/headgate/core

go 1.25.0
