package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeFile writes a Comm's flight file if there is a directory for it.
func (r *Reporter) writeFile(c Comm) {
	if r.cfg.FlightDir == "" {
		return
	}
	if err := r.tryWriteFile(c); err != nil {
		r.cfg.Logger.Warn("tutti: the flight recorder's file could not be written", "reason", err)
	}
}

// tryWriteFile writes the file under a temporary name, so that no reader sees a part of it.
func (r *Reporter) tryWriteFile(c Comm) error {
	dir := r.cfg.FlightDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".flight-*")
	if err != nil {
		return err
	}
	d := c.Dump()
	err = json.NewEncoder(f).Encode(d)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		name := strings.NewReplacer("/", "_", ".", "-").Replace(d.Comm)
		err = os.Rename(f.Name(), filepath.Join(dir, fmt.Sprintf("flight-%s-rank%d-pid%d.json", name, d.Rank, os.Getpid())))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
