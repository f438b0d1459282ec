module github.com/headgate-go/headgate/adapters/llmcost

go 1.25.0

require (
	github.com/go-faster/jx v1.1.0
	github.com/headgate-go/headgate/adapters/nethttp v0.0.0
	github.com/headgate-go/headgate/core v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/go-faster/errors v0.6.1 // indirect
	github.com/segmentio/asm v1.2.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.1.0 // indirect
)

replace (
	github.com/headgate-go/headgate/adapters/nethttp => ../nethttp
	github.com/headgate-go/headgate/core => ../../core
)
