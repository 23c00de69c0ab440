module github.com/tutti-go/tutti

go 1.26.0

require (
	github.com/ebitengine/purego v0.11.0
	golang.org/x/sys v0.49.0
)

require pgregory.net/rapid v1.3.0
