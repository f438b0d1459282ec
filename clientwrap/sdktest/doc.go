// Package sdktest holds tests of clientwrap under the clients that it is made for: the
// SDKs of OpenAI and Anthropic, and go-retryablehttp.
//
// It is a module of its own, outside the workspace: what these clients require, and the
// newer Go, must reach neither clientwrap's users nor the builds of the other modules.
// Run it with GOWORK=off.
package sdktest
