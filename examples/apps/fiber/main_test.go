package main

import (
	"testing"

	"github.com/headgate-go/headgate/examples/apps/internal/apptest"
)

func TestMain(m *testing.M) { apptest.Main(m, main) }

func TestApp(t *testing.T) { apptest.Test(t) }
