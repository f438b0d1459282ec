module github.com/headgate-go/headgate/scripts/tools

go 1.25.0

require golang.org/x/mod v0.34.0
