package main

import (
	"encoding/binary"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"sync"
)

// A server shows the newest weights on a page.
type server struct {
	mu    sync.Mutex
	model *model // guarded by mu; nil: none has come yet
}

// show replaces the weights, and frees the old ones.
func (s *server) show(m *model) {
	s.mu.Lock()
	old := s.model
	s.model = m
	s.mu.Unlock()
	if old != nil {
		_ = old.close() // a failure to free them has no consequence
	}
}

func (s *server) close() { s.show(nil) }

var page = template.Must(template.New("page").Parse(`<!doctype html>
<meta charset="utf-8">
<title>weightsync</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd }
code { font-size: 13px }
.bad { color: #b00 }
</style>
<h1>Weights</h1>
{{with .}}<p>{{.}}</p>
<table><tr><th>tensor<th>type<th>shape<th>first values<th>SHA-256<th></tr>
{{range .Tensors}}<tr><td>{{.Name}}<td>{{.DType}}<td>{{.Shape}}<td><code>{{.Values}}</code><td><code>{{printf "%.16s" .Got}}</code>
<td>{{if .OK}}ok{{else}}<b class="bad">wrong</b>{{end}}</tr>
{{end}}</table>{{else}}<p>None have come yet.</p>{{end}}
`))

// ServeHTTP shows the page.
func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, s.model) // an error means that the client has disconnected
}

// Values returns a tensor's first elements as text.
func (t *tensor) Values() string {
	var values []any
	for b := t.First; len(values) < 4; {
		size := types[t.DType].Size()
		if len(b) < size {
			break
		}
		switch t.DType {
		case "float32":
			values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		case "bfloat16":
			values = append(values, math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16))
		case "float64":
			values = append(values, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		case "int64":
			values = append(values, int64(binary.LittleEndian.Uint64(b)))
		default:
			values = append(values, fmt.Sprintf("%x", b[:size]))
		}
		b = b[size:]
	}
	return fmt.Sprint(values...)
}
