module github.com/headgate-go/headgate/adapters/echo

go 1.25.0

require (
	github.com/gorilla/websocket v1.5.3
	github.com/headgate-go/headgate/core v0.0.0
	github.com/labstack/echo/v4 v4.11.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/golang-jwt/jwt v3.2.2+incompatible // indirect
	github.com/labstack/gommon v0.4.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.19 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.11.0 // indirect
	golang.org/x/net v0.12.0 // indirect
	golang.org/x/sys v0.10.0 // indirect
	golang.org/x/text v0.11.0 // indirect
	golang.org/x/time v0.3.0 // indirect
)

replace github.com/headgate-go/headgate/core => ../../core
