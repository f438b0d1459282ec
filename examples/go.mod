module github.com/headgate-go/headgate/examples

go 1.25.0

require (
	github.com/headgate-go/headgate/adapters/nethttp v0.0.0
	github.com/headgate-go/headgate/core v0.0.0
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.6
	gonum.org/v1/gonum v0.17.0
)

replace (
	github.com/headgate-go/headgate/adapters/nethttp => ../adapters/nethttp
	github.com/headgate-go/headgate/core => ../core
)
