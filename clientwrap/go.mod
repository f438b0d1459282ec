module github.com/headgate-go/headgate/clientwrap

go 1.25.0

require (
	github.com/headgate-go/headgate/core v0.0.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/headgate-go/headgate/core => ../core
