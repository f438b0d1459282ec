module github.com/headgate-go/headgate/adapters/nethttp

go 1.25.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/gorilla/mux v1.8.1
	github.com/headgate-go/headgate/core v0.0.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/headgate-go/headgate/core => ../../core
